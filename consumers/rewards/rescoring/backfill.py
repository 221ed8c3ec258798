"""The history scored again: a slot's present version, as a generation of its own, from offsets to offsets.

Input: what the slot's scope reads, from where the group `<prefix>.rewards.<source>.<name>.g<N>` stands (at its first start, from
`starts`) to `ends`. Output, delivery, ordering: as live work; ids of verdicts and revisions of rewards carry the generation, so
that its word outranks that of every lower one. Killed and started again it goes on where it was, and pays for nothing twice.
Several processes share the partitions. It ends at the ends, at a stop, or when its tokens are spent.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace

from consumers.errors import ConsumerError
from consumers.rewards.app import ScorerDied, SlotThread, source_of
from consumers.rewards.config import ScoredSlot, ScoringBudget
from consumers.rewards.judged import Judged
from consumers.rewards.kinds import Kind
from consumers.rewards.metrics import RewardsMetrics
from consumers.rewards.opinions import GaveUp, Opinion, RewardScorer
from consumers.rewards.rescoring.bounded_log import BoundedLog, LiveWork, left_of
from consumers.rewards.scoring import SubjectSource
from consumers.rewards.settings import RewardsSettings
from consumers.rewards.subjects.of_calls import CallSubjects
from consumers.rewards.subjects.of_rows import RowSubjects
from consumers.rewards.subjects.subject import Subject
from eventlog.kafka.log import KafkaLog
from eventlog.kafka.reader import commit_offsets
from eventlog.records import Place
from eventlog.settings import LogSettings
from schemas.topics import Topic

Holds = Callable[[Subject], bool]


class CannotRescore(ConsumerError):
    """The slot's history cannot be scored again, or not by this generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRange:
    """Offsets by partition of every topic that the scope reads."""

    starts: Mapping[Place, int]
    """Where the group goes on."""
    ends: Mapping[Place, int]
    began: bool
    """Whether the group was there before."""

    @property
    def records(self) -> int:
        """Offsets in between; transaction markers count."""
        return left_of(self.starts, self.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOutcome:
    """What one process did."""

    judged: int
    cached: int
    """Subjects whose verdict was kept before, in this generation."""
    failed: int
    tokens: int
    offsets: Mapping[Place, int]
    """Where the group stands."""
    left: int
    """Records before the ends."""
    budget_spent: bool


def slot_again(slot: ScoredSlot, generation: int) -> ScoredSlot:
    """The slot as a generation of the history. Raises CannotRescore."""
    if not slot.scorer.pure:
        raise CannotRescore(
            f"{slot.name}: pure: false, so its verdicts need what was there at the time; history cannot be scored again"
        )
    return replace(slot, generation=generation, scorer=slot.scorer.model_copy(update={"generation": generation}))


def topics_of(slot: ScoredSlot) -> tuple[Topic, ...]:
    """What its scope reads."""
    return CallSubjects.topics if slot.scorer.scope == "call" else RowSubjects.topics


def range_of(
    settings: LogSettings, slot: ScoredSlot, starts: Mapping[Place, int], ends: Mapping[Place, int]
) -> BackfillRange:
    """From where the generation's group stands; where it never was, from `starts`. Raises BrokerUnreachable."""
    numbers = sorted({partition for _, partition in ends})
    committed = KafkaLog(settings).committed_offsets(slot.group_id(settings.prefix), topics_of(slot), numbers)
    goes_on = {place: starts[place] if (at := committed.get(place)) is None else at for place in ends}
    return BackfillRange(starts=goes_on, ends=ends, began=any(at is not None for at in committed.values()))


def backfill(
    log_settings: LogSettings,
    slot: ScoredSlot,
    settings: RewardsSettings,
    span: BackfillRange,
    *,
    stop: threading.Event,
    holds: Holds = lambda _: True,
    tokens_max: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> BackfillOutcome:
    """Scores until the ends, `stop`, or `tokens_max` are spent by this process. slot: from `slot_again`.

    holds: which subjects are meant. The budget is overdrawn by at most what is asked at once. Raises ConsumerError, LogError.
    """
    if not span.began:
        commit_offsets(log_settings, slot.group_id(log_settings.prefix), span.starts)
    live = LiveWork(log_settings, replace(slot, generation=0).group_id(log_settings.prefix), topics_of(slot))
    budget, metrics = None if tokens_max is None else TokenBudget(tokens_max, stop), RewardsMetrics()
    worker = SlotThread(
        BoundedLog(log_settings, span.starts, span.ends, stop, live, progress),
        budgeted(slot, budget),
        settings.model_copy(update={"stop_grace_s": max(settings.stop_grace_s, slot.scorer.timeout_s)}),
        metrics,
        stop,
        sources=lambda kafka, each, limits: ChosenSubjects(source_of(kafka, each, limits), holds),
    )
    if not span.records:
        stop.set()  # nobody joins for nothing
    worker.run()  # in this thread: there is one slot
    if worker.error is not None:
        raise ScorerDied(f"{slot.name}: {worker.error or type(worker.error).__name__}") from worker.error
    stands = range_of(log_settings, slot, span.starts, span.ends)
    return BackfillOutcome(
        **metrics.sums("judged", "cached", "failed", "tokens"),
        offsets=stands.starts,
        left=stands.records,
        budget_spent=budget is not None and budget.is_spent,
    )


class TokenBudget:
    """Tokens that one process may spend; once they are spent, `stop` is set, and a scorer at a stop asks nobody anything more."""

    def __init__(self, tokens_max: int, stop: threading.Event) -> None:
        self._left, self._stop, self._lock = tokens_max, stop, threading.Lock()
        self.spend(0)

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self._left <= 0

    def spend(self, tokens: int) -> None:
        """From any thread."""
        with self._lock:
            self._left -= tokens
        if self.is_spent:
            self._stop.set()


class BudgetedScorer:
    """A scorer whose answers are paid before anybody sees them."""

    def __init__(self, scorer: RewardScorer, budget: TokenBudget) -> None:
        self._scorer, self._budget = scorer, budget
        self.close = scorer.close

    def judge(self, subjects: Sequence[Judged]) -> Sequence["Future[Opinion]"]:
        """See `RewardScorer`."""
        return [self._paid(answer) for answer in self._scorer.judge(subjects)]

    def _paid(self, answer: "Future[Opinion]") -> "Future[Opinion]":
        paid: Future[Opinion] = Future()
        paid.set_running_or_notify_cancel()

        def settle(_: "Future[Opinion]") -> None:
            error = CancelledError() if answer.cancelled() else answer.exception()
            if error is None:
                self._budget.spend(answer.result().tokens)
                paid.set_result(answer.result())
            else:
                self._budget.spend(error.tokens if isinstance(error, GaveUp) else 0)
                paid.set_exception(error)

        answer.add_done_callback(settle)
        return paid


def budgeted(slot: ScoredSlot, budget: TokenBudget | None) -> ScoredSlot:
    """The slot with a scorer that counts. Its budget per day fails what is beyond; history waits for the next command."""
    if budget is None:
        return replace(slot, options=slot.options.model_copy(update={"budget": None}))
    kind = Kind(slot.kind.settings, lambda scorer: BudgetedScorer(slot.kind.open(scorer), budget))
    few_at_once = ScoringBudget(tokens_per_day=1 << 60)
    return replace(slot, kind=kind, options=slot.options.model_copy(update={"budget": few_at_once}))


class ChosenSubjects:
    """A source, but those subjects that are not meant."""

    def __init__(self, source: SubjectSource, holds: Holds) -> None:
        self._source, self._holds = source, holds
        self.topics = source.topics
        self.add, self.forget, self.close = source.add, source.forget, source.close

    def take(self) -> list[Subject]:
        """Those that are meant."""
        return [subject for subject in self._source.take() if self._holds(subject)]

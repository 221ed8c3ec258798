"""Scores the history again: a slot's present version, as a generation of its own, between offsets.

Input: that of the slot's scope, from the offsets of the group `<prefix>.rewards.<source>.<name>.g<N>` (at its first
start, from `starts`) to `ends`. Output, delivery, ordering: as live work; ids of verdicts and revisions of rewards
carry the generation, so its rewards outrank those of lower ones. After a kill it resumes where it stopped, and pays for
no verdict twice. Several processes share the partitions. It ends at `ends`, at a stop, or when its tokens are spent.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.app import ScorerDied, SlotThread, source_of
from claw_r1.consumers.rewards.budget import TokenBudget
from claw_r1.consumers.rewards.config import ScoredSlot
from claw_r1.consumers.rewards.metrics import RewardsMetrics
from claw_r1.consumers.rewards.rescoring.bounded_log import BoundedLog, LiveWork, left_of
from claw_r1.consumers.rewards.scoring import SubjectSource
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.of_rows import topics_of
from claw_r1.consumers.rewards.subjects.subject import Subject
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.reader import commit_offsets
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings

Holds = Callable[[Subject], bool]


class CannotRescore(ConsumerError):
    """The slot's history cannot be scored again, or not by this generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRange:
    """Offsets by partition of every topic that the scope reads."""

    starts: Mapping[Place, int]
    """The offsets from which the group goes on."""
    ends: Mapping[Place, int]
    began: bool
    """The group was there before."""

    @property
    def records(self) -> int:
        """Offsets in between; transaction markers count."""
        return left_of(self.starts, self.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOutcome:
    """The work of one process."""

    judged: int
    cached: int
    """Subjects whose verdict was kept before, in this generation."""
    failed: int
    tokens: int
    offsets: Mapping[Place, int]
    """The offsets that the group has committed."""
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


def range_of(
    settings: LogSettings, slot: ScoredSlot, starts: Mapping[Place, int], ends: Mapping[Place, int]
) -> BackfillRange:
    """From where the generation's group stands; where it never was, from `starts`. Raises BrokerUnreachable."""
    numbers = sorted({partition for _, partition in ends})
    committed = KafkaLog(settings).committed_offsets(
        slot.group_id(settings.prefix), topics_of(slot.scorer.scope), numbers
    )
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

    holds: which subjects are meant. The slot's budget of a day is none of the history. Raises ConsumerError, LogError.
    """
    if not span.began:
        commit_offsets(log_settings, slot.group_id(log_settings.prefix), span.starts)
    live = LiveWork(
        log_settings, replace(slot, generation=0).group_id(log_settings.prefix), topics_of(slot.scorer.scope)
    )
    budget, metrics = None if tokens_max is None else TokenBudget(tokens_max), RewardsMetrics()
    worker = SlotThread(
        BoundedLog(log_settings, span.starts, span.ends, stop, live, progress),
        replace(slot, options=slot.options.model_copy(update={"budget": None})),
        settings.model_copy(update={"stop_grace_s": max(settings.stop_grace_s, slot.scorer.timeout_s)}),
        metrics,
        stop,
        sources=lambda kafka, each, limits: ChosenSubjects(source_of(kafka, each, limits), holds),
        budget=budget,
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
        budget_spent=budget is not None and budget.left() <= 0,
    )


class ChosenSubjects:
    """A source, but those subjects that are not meant."""

    def __init__(self, source: SubjectSource, holds: Holds) -> None:
        self._source, self._holds = source, holds
        self.topics = source.topics
        self.add, self.forget, self.close = source.add, source.forget, source.close

    def take(self) -> list[Subject]:
        """Returns the subjects that are within the range."""
        return [subject for subject in self._source.take() if self._holds(subject)]

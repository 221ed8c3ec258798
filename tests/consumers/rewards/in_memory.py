"""The engine on the log's memory twin: the real loop, real subjects and verdicts, and a scorer that is a function."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager

from claw_r1.consumers.rewards.budget import DailyBudget
from claw_r1.consumers.rewards.config import ScoredSlot, SlotOptions
from claw_r1.consumers.rewards.judged import Judged
from claw_r1.consumers.rewards.kept_verdicts import Verdicts
from claw_r1.consumers.rewards.kinds import Kind, ScorerSettings
from claw_r1.consumers.rewards.metrics import RewardsMetrics
from claw_r1.consumers.rewards.scorer import Opinion
from claw_r1.consumers.rewards.scoring import SlotScoring
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.log_history import FetchedCalls, LogHistory
from claw_r1.consumers.rewards.subjects.of_calls import CallSubjects
from claw_r1.consumers.rewards.subjects.of_rows import RowSubjects, topics_of
from claw_r1.eventlog.consume import ConsumeLimits, ConsumerLoop
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing, Record, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import Event, RewardAssigned, ScoringFailed, VerdictKept
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import REWARDS, TOPICS, VERDICTS, Topic
from tests.trainer.pooled import rows_of

Answer = Callable[[Judged], object]
SETTINGS = LogSettings(partitions=1)
NEVER = threading.Event()


class FunctionScorer:
    """Answers at once, in the caller's thread. `views`: what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.views: list[Judged] = []

    def judge(self, subjects: Sequence[Judged]) -> list["Future[Opinion]"]:
        return [self._judge(subject) for subject in subjects]

    def close(self) -> None:
        """Nothing is open."""

    def _judge(self, subject: Judged) -> "Future[Opinion]":
        self.views.append(subject)
        future: Future[Opinion] = Future()
        try:
            said = self.answer(subject)
            future.set_result(said if isinstance(said, Opinion) else Opinion(values=said, tokens=10))
        except Exception as error:  # noqa: BLE001  # a scorer's word
            future.set_exception(error)
        return future


def slot_of(scope: str, *, generation: int = 0, options: SlotOptions | None = None, **fields: object) -> ScoredSlot:
    scorer = ScorerSettings(**{"source": "rule", "name": scope, "use": "m:f", "version": 1, "scope": scope, **fields})
    kind = Kind(ScorerSettings, lambda _: FunctionScorer(lambda judged: (0.0,) * judged.answers))
    return ScoredSlot(scorer, options or SlotOptions(), kind, generation)


def history_of(log: MemoryLog) -> LogHistory:
    def begins(topic: Topic) -> dict[tuple[str, int], int]:
        return {place: log.partition(place).low for place in log.places([topic])}

    return LogHistory(log, begins=begins, offsets_at=lambda topic, _: log.end_offsets([topic]))


def engine(
    log: MemoryLog,
    slot: ScoredSlot,
    scorer: FunctionScorer,
    settings: RewardsSettings | None = None,
    clock_us: Callable[[], int] = now_us,
) -> SlotScoring:
    used = settings or RewardsSettings()
    history = history_of(log)
    source = (
        CallSubjects(slot, history, used)
        if slot.scorer.scope == "call"
        else RowSubjects(slot, history, FetchedCalls(log.lookup(), used.requests_bytes_max), used)
    )
    verdicts, budget = Verdicts(log, slot), None
    if (of_a_day := slot.options.budget) is not None:
        budget = DailyBudget(of_a_day.tokens_per_day, verdicts, log.settings.partitions, clock_us)
    return SlotScoring(slot, scorer, verdicts, source, RewardsMetrics(), stop=NEVER, budget=budget)


@contextmanager
def at_work(
    log: MemoryLog,
    slot: ScoredSlot,
    scorer: FunctionScorer,
    *,
    records_max: int = 100,
    settings: RewardsSettings | None = None,
    clock_us: Callable[[], int] = now_us,
) -> Iterator[ConsumerLoop]:
    """A member of the slot's group, which works when its loop is told to."""
    with closing(engine(log, slot, scorer, settings, clock_us)) as scoring:
        loop = ConsumerLoop(
            log,
            scoring._source.topics,
            slot.group_id(log.settings.prefix),
            scoring.work,
            rest=scoring.rest,
            on_assigned=scoring.hold,
            on_revoked=scoring.forget,
            limits=ConsumeLimits(records_max=records_max, retry_s=0.3, work_timeout_s=6),
        )
        with closing(loop):
            yield loop


def work_off(log: MemoryLog, slot: ScoredSlot, loop: ConsumerLoop, steps_max: int = 1000) -> None:
    """Until the slot's group has worked on everything, or for so many polls."""
    topics = topics_of(slot.scorer.scope)
    group = slot.group_id(log.settings.prefix)
    for _ in range(steps_max):
        if log.committed_offsets(group, topics, range(log.settings.partitions)) == log.end_offsets(topics):
            break
        loop.step(NEVER)
        loop.commit()


def judge_all(
    log: MemoryLog,
    slot: ScoredSlot,
    answer: Answer,
    *,
    records_max: int = 100,
    steps_max: int = 1000,
    settings: RewardsSettings | None = None,
) -> FunctionScorer:
    """Runs the slot until its group has worked on everything, or for so many polls."""
    scorer = FunctionScorer(answer)
    with at_work(log, slot, scorer, records_max=records_max, settings=settings) as loop:
        work_off(log, slot, loop, steps_max)
    return scorer


def pooled_log(history: Iterable[Event]) -> MemoryLog:
    """Facts, and each row as it comes to be."""
    log = MemoryLog(SETTINGS)
    add_to(log, history)
    return log


def add_to(log: MemoryLog, history: Iterable[Event]) -> None:
    topics = {topic.name: topic for topic in TOPICS}
    for group, name, key, value in rows_of(history, lambda item: log.append([item])[0]):
        partition = partition_of(group_key(group), log.settings.partitions)
        log.append([Outgoing(topic=topics[name], key=key, value=value, partition=partition)])


def events_in(log: MemoryLog, topic: Topic) -> list[Event]:
    with closing(log.reader([topic])) as reader:
        records: list[Record] = list(reader.read_to_end())
    return list(readable(records))


def words(log: MemoryLog) -> list[RewardAssigned | ScoringFailed]:
    return [event for event in events_in(log, REWARDS) if isinstance(event, RewardAssigned | ScoringFailed)]


def verdicts(log: MemoryLog) -> list[VerdictKept]:
    return [event for event in events_in(log, VERDICTS) if isinstance(event, VerdictKept)]


def slots(log: MemoryLog) -> dict[tuple[str, str, str | None], object]:
    """Subject -> the value, or the word, that counts: the fold's rule."""
    won: dict[tuple[str, str, str | None], RewardAssigned | ScoringFailed] = {}
    for event in words(log):
        subject = (event.group_id, event.trajectory_id, event.call_id)
        if subject not in won or _rank(event) > _rank(won[subject]):
            won[subject] = event
    return {
        subject: event.value if isinstance(event, RewardAssigned) else event.reason for subject, event in won.items()
    }


def _rank(event: RewardAssigned | ScoringFailed) -> tuple[int, int, str]:
    return event.revision, event.envelope.occurred_at_us, event.envelope.event_id

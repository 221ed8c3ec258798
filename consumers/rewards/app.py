"""The composition root: one thread per slot, each a member of its slot's consumer group on the real log.

A slot that is fenced leaves its group and joins again; whatever else ends a thread ends the process, which is started again.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

import structlog

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.budget import DailyBudget, TokenBudget
from claw_r1.consumers.rewards.config import ScoredSlot, load
from claw_r1.consumers.rewards.kept_verdicts import Verdicts
from claw_r1.consumers.rewards.metrics import RewardsMetrics
from claw_r1.consumers.rewards.scorer import RewardScorer
from claw_r1.consumers.rewards.scoring import ScoringStopped, SlotScoring, SubjectSource
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.consumers.rewards.subjects.log_history import FetchedCalls, LogHistory
from claw_r1.consumers.rewards.subjects.of_calls import CallSubjects
from claw_r1.consumers.rewards.subjects.of_rows import RowSubjects, topics_of
from claw_r1.eventlog.consume import ConsumeLimits, consume
from claw_r1.eventlog.errors import Fenced, LogError
from claw_r1.eventlog.kafka.acls import check_access
from claw_r1.eventlog.kafka.admin import as_on_broker, begin_offsets, offsets_at
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.reader import commit_offsets, read_topics
from claw_r1.eventlog.records import Place, readable
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.logs import log_to_stderr
from claw_r1.runtime.monitoring.server import monitored
from claw_r1.runtime.monitoring.tracing import traced
from claw_r1.runtime.stop_signals import stop_event
from claw_r1.schemas.events import VerdictKept
from claw_r1.schemas.topics import VERDICTS

log = structlog.get_logger()

WATCH_S = 0.2
REJOIN_PAUSE_S = 0.5


class ScorerDied(ConsumerError):
    """A slot's thread ended by an error; the process ends with it."""


def serve(settings: RewardsSettings, log_settings: LogSettings) -> None:
    """Score until SIGTERM or SIGINT. Several processes of one file share the partitions. Raises ConsumerError, LogError."""
    log_to_stderr()
    slots = load(settings.config)
    warn_of_timeouts(slots, settings)
    metrics, stop = RewardsMetrics(), stop_event()
    kafka = KafkaLog(log_settings)
    threads = [SlotThread(kafka, slot, settings, metrics, stop) for slot in slots]
    watched = monitored(
        metrics.registry, settings.metrics_host, settings.metrics_port, lambda: why_not_scoring(threads)
    )
    with traced("rewards"), watched:
        check_access(log_settings, "rewards")
        for slot in slots:
            begin(kafka, slot)
        _score(threads, stop)


def why_not_scoring(threads: Iterable["SlotThread"]) -> str | None:
    """Returns which slots have no thread that scores, or None."""
    idle = [thread.slot.name for thread in threads if not thread.is_alive()]
    return f"slots that do not score: {', '.join(idle)}" if idle else None


def _score(threads: Sequence["SlotThread"], stop: threading.Event) -> None:
    for thread in threads:
        thread.start()
    while not stop.wait(WATCH_S):
        if any(thread.error is not None for thread in threads):
            stop.set()
    for thread in threads:
        thread.join()
    for thread in threads:
        if thread.error is not None:
            raise ScorerDied(f"{thread.slot.name}: {thread.error or type(thread.error).__name__}") from thread.error


def warn_of_timeouts(slots: Iterable[ScoredSlot], settings: RewardsSettings) -> None:
    """No retry begins after half of `work_timeout_s`: a verdict should be there by then."""
    for slot in slots:
        if slot.scorer.timeout_s > settings.work_timeout_s / 2:
            advice = f"raise work_timeout_s from {settings.work_timeout_s:g} to twice its timeout_s"
            log.warning("rewards_timeout_too_long", slot=slot.name, timeout_s=slot.scorer.timeout_s, advice=advice)


def begin(kafka: KafkaLog, slot: ScoredSlot) -> None:
    """Sets where a group without offsets begins; one that has some goes on. Raises LogError.

    Kafka drops offsets of a group that has no members for long, so that one without them may have been at work all the same.
    """
    if slot.options.since == "beginning":
        return
    topics = topics_of(slot.scorer.scope)
    ends = kafka.end_offsets(topics)
    group = slot.group_id(kafka.settings.prefix)
    committed = kafka.committed_offsets(group, topics, sorted({number for _, number in ends}))
    if any(offset is not None for offset in committed.values()):
        return
    if starts := _left_off(kafka.settings, slot):
        commit_offsets(kafka.settings, group, starts)
        records = sum(max(0, end - starts[place]) for place, end in ends.items())
        log.warning("rewards_begins_at_newest_verdict", slot=slot.name, records=records)
    else:
        commit_offsets(kafka.settings, group, ends)
        log.info("rewards_begins_now", slot=slot.name)


def _left_off(settings: LogSettings, slot: ScoredSlot) -> dict[Place, int] | None:
    """Finds out where the slot was, of whatever version, when it kept its newest verdict; None where it kept none, and where all that
    it reads was written later: by a rebuild or a copy, whose times say nothing of the slot's."""
    own, topics = (slot.scorer.source, slot.scorer.name, slot.generation), topics_of(slot.scorer.scope)
    kept = (event for event in readable(read_topics(settings, [VERDICTS])) if isinstance(event, VerdictKept))
    times_us = (each.envelope.occurred_at_us for each in kept if (each.source, each.name, each.generation) == own)
    if (newest_us := max(times_us, default=None)) is None:
        return None
    starts = offsets_at(settings, topics, newest_us // 1000)
    return starts if any(starts.values()) else None


def history_of(kafka: KafkaLog) -> LogHistory:
    """The log backwards."""
    log_settings = kafka.settings
    return LogHistory(
        kafka,
        begins=lambda topic: begin_offsets(log_settings, [topic]),
        offsets_at=lambda topic, timestamp_ms: offsets_at(log_settings, [topic], timestamp_ms),
    )


def source_of(kafka: KafkaLog, slot: ScoredSlot, settings: RewardsSettings) -> SubjectSource:
    """Returns the source of the slot's subjects."""
    if slot.scorer.scope == "call":
        return CallSubjects(slot, history_of(kafka), settings)
    return row_subjects(kafka, slot, settings)


def row_subjects(kafka: KafkaLog, slot: ScoredSlot, settings: RewardsSettings) -> RowSubjects:
    """Returns what makes subjects of the pool's rows, of any scope."""
    return RowSubjects(slot, history_of(kafka), FetchedCalls(kafka.lookup(), settings.requests_bytes_max), settings)


def daily_budget(slot: ScoredSlot, verdicts: Verdicts, log_settings: LogSettings) -> TokenBudget | None:
    """Returns the budget of live work. Raises LogError."""
    if (budget := slot.options.budget) is None:
        return None
    return DailyBudget(budget.tokens_per_day, verdicts, as_on_broker(log_settings).partitions)


class SlotThread(threading.Thread):
    """One slot, until `stop` or an error, which stands in `error`."""

    def __init__(
        self,
        kafka: KafkaLog,
        slot: ScoredSlot,
        settings: RewardsSettings,
        metrics: RewardsMetrics,
        stop: threading.Event,
        sources: Callable[[KafkaLog, ScoredSlot, RewardsSettings], SubjectSource] = source_of,
        budget: TokenBudget | None = None,
    ) -> None:
        """budget: in place of the slot's own of a day."""
        super().__init__(name=f"rewards-{slot.name}")
        self.slot = slot
        self.error: BaseException | None = None
        self._kafka = kafka
        self._settings = settings
        self._metrics = metrics
        metrics.partitions.labels(slot.name)  # 0 until the group gives it some
        self._sources = sources
        self._budget = budget
        self._halt = stop  # a Thread has a `_stop` of its own

    def run(self) -> None:
        try:
            with closing(self.slot.kind.open(self.slot.scorer)) as scorer:
                while not self._halt.is_set() and not self._served(scorer):
                    self._metrics.rejoined.labels(self.slot.name).inc()
                    self._halt.wait(REJOIN_PAUSE_S)
        except (ConsumerError, LogError) as refusal:  # a sentence for a person, as a rule that does not load
            log.error("rewards_slot_died", slot=self.slot.name, error=str(refusal))
            self.error = refusal
        except Exception as error:  # the main thread ends the process with it
            log.exception("rewards_slot_died", slot=self.slot.name)
            self.error = error

    def _served(self, scorer: RewardScorer) -> bool:
        """One membership. False: it was fenced, and joins again with nothing in memory."""
        kafka, settings = self._kafka, self._settings
        verdicts = Verdicts(kafka, self.slot, stop=self._halt)
        scoring = SlotScoring(
            self.slot,
            scorer,
            verdicts,
            source := self._sources(kafka, self.slot, settings),
            self._metrics,
            stop=self._halt,
            stop_grace_s=settings.stop_grace_s,
            budget=self._budget or daily_budget(self.slot, verdicts, kafka.settings),
        )
        limits = ConsumeLimits(
            records_max=settings.records_max,
            commit_interval_s=settings.commit_interval_s,
            work_timeout_s=settings.work_timeout_s,
        )
        group = self.slot.group_id(kafka.settings.prefix)
        with closing(scoring):
            try:
                consume(
                    kafka,
                    source.topics,
                    group,
                    scoring.work,
                    rest=scoring.rest,
                    stop=self._halt,
                    on_assigned=scoring.hold,
                    on_revoked=scoring.forget,
                    limits=limits,
                )
            except ScoringStopped:
                log.info("rewards_stopped_before_verdicts", slot=self.slot.name)
            except Fenced as error:
                log.warning("rewards_fenced", slot=self.slot.name, error=str(error))
                return False
        return True

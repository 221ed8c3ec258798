"""The skin of the reactors: writes their decisions to the log.

Output: claw.calls, key group_id, plain facts (not transactional: Faust reads uncommitted), at least once.

Invariant: a decision is written only when it was taken from a state in which all facts that existed at the moment
it was first due are folded. Otherwise a worker that returns after an hour would abandon trajectories completed
meanwhile. Until a decision has returned through the log it would be taken again; that is harmless, and avoided
for `RESEND_S`.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.records import Outgoing, Place
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.streams.partition.state import PartitionState
from claw_r1.streams.reactors import Decision, decide, outlived

log = structlog.get_logger()

RESEND_S = 30.0
GROUPS_SHOWN = 5
LogEnds = Mapping[Place, int]
States = Mapping[int, PartitionState]


Decide = Callable[[PartitionState, int], list[Decision]]
"""(state, now in microseconds) -> what is due."""


def by_idleness(idle_timeout_s: float) -> Decide:
    """Returns decisions that end trajectories and groups that nobody ends."""
    idle_us = int(idle_timeout_s * 1e6)
    return lambda state, now_us: decide(state.waiting(), now_us, idle_us)


def by_age(retention_s: float) -> Decide:
    """Returns decisions that take old groups out of the pool."""
    retention_us = int(retention_s * 1e6)
    return lambda state, now_us: [*outlived(state.untouched(now_us - retention_us), now_us, retention_us)]


@dataclass(frozen=True, slots=True)
class Due:
    """The decisions of one look at the partitions, and those of them that may be written."""

    decisions: list[Decision] = field(default_factory=list)
    ripe: list[Decision] = field(default_factory=list)


class DecisionGate:
    """The gate for decisions that may be written: what was in the log when they fell due is folded. Pure."""

    def __init__(self) -> None:
        self._ends: dict[str, LogEnds] = {}

    def ripe(self, decisions: Sequence[Decision], state: PartitionState) -> list[Decision]:
        """Returns the decisions whose evidence is complete. They must have been taken from the state as it is: by what is
        folded since, another decision may be due, or none."""
        return [decision for decision in decisions if _folded(state, self._ends.get(decision.envelope.event_id))]

    def unknown(self, due: Sequence[Decision]) -> bool:
        """Returns whether a decision is due that was not due before: the end of the log has to be asked for."""
        return not _ids(due) <= self._ends.keys()

    def note(self, due: Sequence[Decision], ends: LogEnds) -> None:
        """Remember the ends for decisions that are new."""
        self._ends = dict.fromkeys(_ids(due), ends) | self._ends

    def forget_all_but(self, due: Sequence[Decision]) -> None:
        """Forgets decisions that are due no more: when one is due again (after another owner of its partition), the log has more."""
        self._ends = {event_id: self._ends[event_id] for event_id in _ids(due) & self._ends.keys()}


def _ids(due: Sequence[Decision]) -> set[str]:
    return {decision.envelope.event_id for decision in due}


def _folded(state: PartitionState, ends: LogEnds | None) -> bool:
    if ends is None:
        return False
    return all(state.expected(topic) >= end for (topic, number), end in ends.items() if number == state.partition)


class DecisionWriter:
    """Acts for the partitions it is shown; one instance per worker, so per partition exactly one is active."""

    def __init__(
        self,
        producer: EventProducer,
        decide: Decide,
        metrics: StreamsMetrics,
        ask_ends: Callable[[], Awaitable[LogEnds]],
    ) -> None:
        """ask_ends: end offsets of the fact topics, now."""
        self._producer = producer
        self._decide = decide
        self._metrics = metrics
        self._ask_ends = ask_ends
        self._gate = DecisionGate()
        self._sent_at_s: dict[str, float] = {}

    async def due(self, states: States, now_us: int) -> Due:
        """Returns what is due and was not written just now. Others have their turn between two partitions: facts are folded
        there, so that each partition's decisions are judged before it."""
        due = Due()
        for state in states.values():
            decisions = [decision for decision in self._decide(state, now_us) if self._is_new(decision)]
            due.decisions.extend(decisions)
            due.ripe.extend(self._gate.ripe(decisions, state))
            await asyncio.sleep(0)
        return due

    async def act(self, due: Due) -> None:
        """Write ripe decisions; `due` is of this moment. If the log does not answer, the next round tries again.

        Ripe ones go first: if something new fell due in every round, old ones would wait for ever.
        """
        self._gate.forget_all_but(due.decisions)
        try:
            if ripe := due.ripe:
                await self._producer.publish_all(
                    [Outgoing.of(CALLS, group_key(decision.group_id), decision) for decision in ripe]
                )
                self._note(ripe)
            if self._gate.unknown(due.decisions):
                self._gate.note(due.decisions, await self._ask_ends())
        except LogError as error:
            log.warning("streams_decisions_postponed", error=str(error))

    def _is_new(self, decision: Decision) -> bool:
        return time.monotonic() - self._sent_at_s.get(decision.envelope.event_id, -RESEND_S) >= RESEND_S

    def _note(self, written: Sequence[Decision]) -> None:
        now_s = time.monotonic()
        self._sent_at_s = {key: at for key, at in self._sent_at_s.items() if now_s - at < RESEND_S}
        self._sent_at_s |= dict.fromkeys((decision.envelope.event_id for decision in written), now_s)
        kinds = Counter(type(decision).__name__ for decision in written)
        for kind, count in kinds.items():
            self._metrics.decisions.labels(kind).inc(count)
        log.info("streams_decided", **kinds, groups=sorted({decision.group_id for decision in written})[:GROUPS_SHOWN])

"""The number of facts that wait, and the watch for a worker that is alive and folds none, as Faust does after some
rebalances and with an empty assignment: then its process ends.

Invariant: an idle log is no stall, a slow worker is none either: facts that are folded again count, and so does the time
that a partition takes to be taken over or healed, which has limits of its own.
"""

import time
from collections.abc import Mapping

import structlog

from claw_r1.eventlog.errors import BrokerUnreachable
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.kafka.reader import committed_offsets
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import FACTS
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.streams.ownership import group_name
from claw_r1.streams.partition.state import PartitionState

log = structlog.get_logger()


class Watchdog:
    """Stalled: facts are waiting, and none has been folded for `stall_s`."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._processed = -1
        self._moved_at_s = 0.0

    def stalled(self, *, processed: int, lag: int, now_s: float) -> bool:
        """processed: a count that grows with each fact; lag: facts waiting; now_s: a clock that never goes back."""
        if processed != self._processed or lag <= 0:
            self._processed, self._moved_at_s = processed, now_s
        return now_s - self._moved_at_s >= self._stall_s


class LagWatch:
    """Looks at the lag now and then; blocking."""

    def __init__(self, log_settings: LogSettings, stall_s: float, metrics: StreamsMetrics) -> None:
        """stall_s: how long facts may wait while none is folded."""
        self._log_settings = log_settings
        self._stall_s = stall_s
        self._metrics = metrics
        self._watchdog = Watchdog(stall_s)

    def stall(self, states: Mapping[int, PartitionState], at_work: bool = False) -> str | None:
        """Returns why the worker is stalled, or None. states: of the partitions that it owns. at_work: it takes some over."""
        try:
            processed, lag = self._measure(states)
        except BrokerUnreachable as error:
            log.warning("streams_lag_unknown", error=str(error))
            return None
        self._metrics.lag.set(lag if states else 0)
        if self._watchdog.stalled(processed=processed, lag=0 if at_work else lag, now_s=time.monotonic()):
            return f"{lag} facts wait and none was folded for {self._stall_s} s"
        return None

    def _measure(self, states: Mapping[int, PartitionState]) -> tuple[int, int]:
        """Facts processed so far and facts waiting: of these partitions, or, if none, of the whole group.

        A group must not wait while no member has any of its partitions.
        """
        settings = self._log_settings
        ends = end_offsets(settings, FACTS)
        if states:
            topics = [settings.catalogue().name(topic) for topic in FACTS]
            at = {(name, number): state.expected(name) for number, state in states.items() for name in topics}
        else:
            places = committed_offsets(settings, group_name(settings.catalogue()), FACTS, range(settings.partitions))
            at = {place: offset or 0 for place, offset in places.items()}
        # Where Kafka forgot the group, facts are folded again for long, and no position moves.
        folded = sum(state.folded for state in states.values())
        return sum(at.values()) + folded, sum(max(0, ends.get(place, 0) - offset) for place, offset in at.items())

"""The writing of a worker's folded facts: one transaction per partition with anything pending, all at once."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping

from claw_r1.eventlog.records import Record
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.streams.ownership import FaustEvent, FoldedBatch, InThread, OwnedPartition
from claw_r1.streams.settings import StreamsSettings


def flush_due(fetched: int, since_s: float, behind_s: float) -> bool:
    """While fetched facts wait, a later and larger flush writes the row of a trajectory once where many would write it often."""
    return fetched == 0 or since_s >= behind_s


class Flusher:
    """Counts what is folded since the last flush, and flushes."""

    def __init__(
        self,
        settings: StreamsSettings,
        metrics: StreamsMetrics,
        partitions: Mapping[int, OwnedPartition],
        in_thread: InThread,
        is_current: Callable[[FaustEvent], bool],
    ) -> None:
        """partitions: those that are owned, at any time. is_current: whether an event is of the present assignment."""
        self.lock = asyncio.Lock()
        """Held while partitions are written, opened or healed, and while decisions are taken."""
        self._settings = settings
        self._metrics = metrics
        self._partitions = partitions
        self._in_thread = in_thread
        self._is_current = is_current
        self._events = self._bytes = 0
        self._flushed_at_s = self._fold_s = 0.0
        self._outcomes: Counter[str] = Counter()

    def fold(self, owned: OwnedPartition, event: FaustEvent, record: Record) -> None:
        """Fold an event that is acknowledged with the next flush."""
        start = time.perf_counter()
        self._outcomes[owned.state.apply(record)] += 1
        owned.events.append(event)
        self._events += 1
        self._bytes += len(record.value or b"")
        self._fold_s += time.perf_counter() - start

    @property
    def is_full(self) -> bool:
        """So much is folded that the next flush must not wait for the interval."""
        return self._events >= self._settings.flush_events_max or self._bytes >= self._settings.flush_bytes_max

    async def flush_unless_behind(self, fetched: int) -> None:
        """At every interval. fetched: facts in memory that wait to be folded."""
        if flush_due(fetched, time.monotonic() - self._flushed_at_s, self._settings.flush_behind_s):
            await self.flush()

    async def flush(self) -> None:
        """Returns when the transactions are committed. Raises Fenced and other LogErrors."""
        async with self.lock:
            batches = [(owned, owned.take()) for owned in self._partitions.values() if owned.pending]
            self._events, self._bytes, self._flushed_at_s = 0, 0, time.monotonic()
            self._count()
            if batches:
                with self._metrics.commit_seconds.time():
                    await asyncio.gather(*(self._in_thread(owned.commit, batch) for owned, batch in batches))
                for _, batch in batches:
                    self._committed(batch)

    def _count(self) -> None:
        """Once per flush: a metric's lock and labels cost more than a small fact."""
        for outcome, number in self._outcomes.items():
            self._metrics.facts.labels(outcome).inc(number)
        self._metrics.fold_seconds.inc(self._fold_s)
        self._outcomes.clear()
        self._fold_s = 0.0

    def _committed(self, batch: FoldedBatch) -> None:
        """Only events of the present assignment: an older one would move offsets of a partition that has a new owner."""
        events, rows = batch
        for event in filter(self._is_current, events):
            event.ack()
        self._metrics.commits.inc()
        self._metrics.rows.inc(len(rows))

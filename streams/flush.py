"""The writing of a worker's folded facts: one transaction per partition with anything pending, all at once."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping

from claw_r1.eventlog.records import Record
from claw_r1.runtime.monitoring.tracing import spans
from claw_r1.schemas.cloudevents import traceparent_of
from claw_r1.schemas.envelopes import now_us
from claw_r1.streams.faust_.app import record_of
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.streams.ownership import FaustEvent, FoldedBatch, InThread, OwnedPartition
from claw_r1.streams.settings import StreamsSettings

PROCESS = {"messaging.system": "kafka", "messaging.operation.type": "process"}


def flush_due(fetched: int, since_s: float, settings: StreamsSettings, *, waits: bool) -> bool:
    """Returns whether a partition is written now. While fetched facts wait, or all that changed waits for members, a later and larger
    flush writes the row of a trajectory once where many would write it often."""
    longest_s = max(settings.flush_behind_s if fetched else 0.0, settings.flush_waiting_s if waits else 0.0)
    return since_s >= longest_s


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
        self._fold_s = 0.0
        self._outcomes: Counter[str] = Counter()

    def fold(self, owned: OwnedPartition, event: FaustEvent, record: Record) -> None:
        """Fold an event that is acknowledged with the next flush."""
        start = time.perf_counter()
        self._outcomes[owned.state.apply(record)] += 1
        owned.events.append(event)
        owned.bytes += len(record.value or b"")
        self._events += 1
        self._bytes += len(record.value or b"")
        self._fold_s += time.perf_counter() - start

    @property
    def is_full(self) -> bool:
        """So much is folded that the next flush must not wait for the interval."""
        return self._events >= self._settings.flush_events_max or self._bytes >= self._settings.flush_bytes_max

    async def flush_unless_behind(self, fetched: int) -> None:
        """At every interval. fetched: facts in memory that wait to be folded."""
        now_s = time.monotonic()
        await self.flush(
            lambda owned: flush_due(
                fetched, now_s - owned.taken_at_s, self._settings, waits=owned.state.waits_for_members
            )
        )

    async def flush(self, due: Callable[[OwnedPartition], bool] = lambda _: True) -> None:
        """Returns when the transactions of the partitions that are due are committed. Raises Fenced and other LogErrors."""
        async with self.lock:
            pending = [owned for owned in self._partitions.values() if owned.pending and due(owned)]
            batches = [(owned, owned.take()) for owned in pending]
            self._events = sum(len(owned.events) for owned in self._partitions.values())
            self._bytes = sum(owned.bytes for owned in self._partitions.values())
            self._count()
            if batches:
                began_us = now_us()
                with self._metrics.commit_seconds.time():
                    await asyncio.gather(*(self._in_thread(owned.commit, batch) for owned, batch in batches))
                for _, batch in batches:
                    self._committed(batch)
                    self._trace(batch, began_us)

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

    def _trace(self, batch: FoldedBatch, began_us: int) -> None:
        if (own := spans()) is not None and batch[0]:
            counts = {"messaging.batch.message_count": len(batch[0]), "claw.rows": len(batch[1])}
            headers = (record_of(event.message).headers for event in batch[0])
            own.record("process facts", began_us, map(traceparent_of, headers), {**PROCESS, **counts})

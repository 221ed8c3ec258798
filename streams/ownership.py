"""The partitions that a worker owns: fenced, read from the log, and healed before their first event flows.

Invariant: nothing is written for a partition whose producer is not the last one opened, and nothing is acknowledged before
the transaction that holds its effect is committed; after an error here the state is ahead of the log, so the only remedy is
a new process. The coroutines are called under the worker's lock, so that no transaction is in flight and nothing is half
folded.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog

from claw_r1.eventlog.errors import BrokerUnreachable, LogError
from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.kafka.transactions import TransactionalProducer
from claw_r1.eventlog.records import Outgoing, Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.topics import Catalogue
from claw_r1.streams.errors import NotCopartitioned
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.streams.partition.state import PartitionState
from claw_r1.streams.recovery import heal, heal_behind_group, pool_copies, states_of
from claw_r1.streams.settings import StreamsSettings
from claw_r1.streams.standby import POOL, PoolCopy, Standby, beside

log = structlog.get_logger()

FaustEvent = Any  # faust is untyped
FoldedBatch = tuple[list[FaustEvent], list[Outgoing]]
InThread = Callable[..., Awaitable[Any]]
"""(blocking function, its arguments) -> its result, without blocking the event loop."""


def group_name(catalogue: Catalogue) -> str:
    """The consumer group, one per generation of the pool; also the stem of the transactional ids of its writers."""
    return catalogue.streams_group


def open_producer(log_settings: LogSettings, partition: int, timeout_ms: int = 60_000) -> TransactionalProducer:
    """Fences whoever owned the partition before. Blocking. Raises Fenced, BrokerUnreachable."""
    transactional_id = f"{group_name(log_settings.catalogue())}-{partition}"
    producer = TransactionalProducer(log_settings, transactional_id, timeout_ms=timeout_ms, positions=False)
    producer.open()
    return producer


class OwnedPartition:
    """Its state, the producer that fences its writes, and the events that wait for their commit.

    Used by the event loop, except `commit` and `close`, which block and run in a thread.
    """

    def __init__(self, state: PartitionState, producer: TransactionalProducer, copy: PoolCopy) -> None:
        """copy: the rows that `state` was read from, in the store that it has."""
        self.state = state
        self.events: list[FaustEvent] = []
        self.bytes = 0
        """The bytes of their facts."""
        self.taken_at_s = 0.0
        """The time of the last batch (monotonic)."""
        self._producer = producer
        self._copy = copy
        self._is_committed = True
        self.has_new = False
        """There are committed rows since the last `keep`."""

    @property
    def pending(self) -> bool:
        return self.state.pending or bool(self.events)

    def take(self) -> FoldedBatch:
        """Takes the events since the last batch; a snapshot, so folding continues while it is written."""
        events, self.events = self.events, []
        self.bytes, self.taken_at_s = 0, time.monotonic()
        self._is_committed = False
        return events, self.state.take_batch(now_us())

    def commit(self, batch: FoldedBatch) -> None:
        """Returns when the batch is visible to committed readers. Raises Fenced and other LogErrors."""
        self._producer.commit(batch[1])
        self._is_committed = self.has_new = True

    def keep(self, before: Mapping[Place, int], now: Mapping[Place, int]) -> None:
        """Keeps the committed rows for the next owner on this machine. Call while no batch is being written. Raises
        StoreFailed.

        before: the ends of the pool's partitions, read before the last commit: as it
        was not fenced, all records below them are in the store. now: the present ones.
        """
        copy = self._copy
        if self.has_new:
            own = {place: at for place, at in before.items() if place[1] == self.state.partition}
            copy.read |= {place: at for place, at in own.items() if at > copy.read.get(place, 0)}
            copy.ends = {place: at for place, at in now.items() if place[1] == self.state.partition}
        self.has_new = False
        copy.caught_up()
        copy.save()

    def close(self) -> None:
        """Give the producer's threads back, and the rows. What was not committed is in no file."""
        self._producer.close()
        self._copy.close(is_committed=self._is_committed)


class Ownership:
    """The owned partitions by number, kept in step with what the consumer group assigns."""

    def __init__(
        self, log_settings: LogSettings, settings: StreamsSettings, metrics: StreamsMetrics, in_thread: InThread
    ) -> None:
        self.partitions: dict[int, OwnedPartition] = {}
        self.at_work = False
        """Partitions are taken over, or one is healed: nothing can be folded meanwhile."""
        self._log_settings = log_settings
        self._settings = settings
        self._metrics = metrics
        self._in_thread = in_thread
        self._generation = 0
        self._standby = Standby(log_settings)
        self._ends: Mapping[Place, int] = {}
        metrics.standby.set_function(lambda: self._standby.copied)

    @property
    def states(self) -> dict[int, PartitionState]:
        return {number: owned.state for number, owned in self.partitions.items()}

    async def take_over(self, assigned: set[int], generation: int) -> None:
        """Give up what is not assigned any more or may have had another owner, and open the rest.

        generation: of the consumer group. Call before any event of the assignment flows.
        """
        with self._working():
            await self._take_over(assigned, generation)

    @contextmanager
    def _working(self) -> Iterator[None]:
        self.at_work = True
        try:
            yield
        finally:
            self.at_work = False

    async def _take_over(self, assigned: set[int], generation: int) -> None:
        missed = generation != self._generation + 1  # somebody else may have owned what we hold
        self._generation = generation
        stale = [
            number for number, owned in self.partitions.items() if missed or number not in assigned or owned.pending
        ]
        await self._give_up(stale)
        new = sorted(assigned - self.partitions.keys())
        copies = await self._open(new)
        await self._heal_behind_group()
        self._metrics.partitions.set(len(assigned))
        if self._settings.standby:
            await self.copy()
        kept = sorted(assigned - set(new))
        log.info("streams_assigned", generation=generation, opened=new, kept=kept, from_copies=copies)

    async def keep(self) -> None:
        """Keeps all rows that are committed in the files of their partitions. Raises StoreFailed."""
        owned, ends = [*self.partitions.values()], self._ends
        if self._log_settings.views_dir is None:
            return
        if any(one.has_new for one in owned):
            try:
                ends = await self._in_thread(end_offsets, self._log_settings, POOL)
            except BrokerUnreachable:
                return
        await asyncio.gather(*(self._in_thread(one.keep, self._ends, ends) for one in owned))
        self._ends = ends

    async def look(self) -> None:
        """Looks how far the copies are of what others own."""
        await self._in_thread(self._standby.look)

    async def close(self) -> None:
        """Gives all partitions up, and what is copied."""
        await self._give_up([*self.partitions])
        await self._in_thread(self._standby.hold, ())

    async def _give_up(self, numbers: Iterable[int]) -> None:
        await asyncio.gather(*(self._in_thread(self.partitions.pop(number).close) for number in numbers))

    async def copy(self) -> None:
        """Copies this worker's possible next partitions from now on. Without it takeovers are slow, but correct."""
        try:
            await self._in_thread(self._standby.hold, beside(self.partitions, self._log_settings.partitions))
        except LogError as error:
            log.warning("streams_standby_failed", error=str(error))

    @property
    def is_copying(self) -> bool:
        """Returns whether it copies as it should."""
        return self._standby.is_reading

    async def _open(self, numbers: list[int]) -> list[int]:
        """Fences first, all in parallel, and only then reads. Returns those of which it had copies."""
        if not numbers:
            return []
        opening = (
            self._in_thread(open_producer, self._log_settings, number, self._settings.transaction_timeout_ms)
            for number in numbers
        )
        producers = dict(zip(numbers, await asyncio.gather(*opening), strict=True))
        copies = await self._in_thread(self._standby.take, numbers)
        held = await self._in_thread(pool_copies, self._log_settings, numbers, copies)
        states = await self._in_thread(states_of, self._log_settings, held)
        self.partitions |= {
            number: OwnedPartition(states[number], producers[number], held[number]) for number in numbers
        }
        return sorted(number for number, copy in copies.items() if copy.read)

    async def _heal_behind_group(self) -> None:
        if states := self.states:
            group = group_name(self._log_settings.catalogue())
            self._metrics.healed.inc(await self._in_thread(heal_behind_group, self._log_settings, group, states))

    async def heal(self, owned: OwnedPartition, topic: str, end: int) -> None:
        """Fold the records that Faust skipped: all of the topic up to `end`, which is next."""
        with self._working():
            self._metrics.healed.inc(await self._in_thread(heal, self._log_settings, owned.state, topic, end))


def assigned_numbers(assignment: Iterable[Place], topics: Iterable[str]) -> set[int]:
    """Partition numbers that were assigned, the same of each of the topics. Raises NotCopartitioned.

    topics: full names.
    """
    by_topic = {name: set[int]() for name in topics}
    for topic, number in assignment:
        if topic in by_topic:
            by_topic[topic].add(number)
    first, *others = by_topic.values()
    if any(other != first for other in others):
        raise NotCopartitioned(f"assigned {by_topic}")
    return first

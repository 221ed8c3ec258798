"""The log in memory, for tests: the same shapes, positions and errors as the Kafka log, and no client library.

Invariant: what the contract tests say of one log holds for the other. Transaction markers take offsets here too, so
that code which counts records instead of comparing positions fails on either. Only the passing of time is simpler:
acknowledgements come at once, or, while `refusing` is set, never.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from eventlog.errors import Fenced, HistoryCut, LogError, NotAcknowledged, RecordTooLarge, TopicMissing
from eventlog.memory_group import MemoryGroup
from eventlog.partitioner import partition_of
from eventlog.protocols import OnRevoked, Start
from eventlog.records import Outgoing, Place, Position, Record
from eventlog.settings import LogSettings
from eventlog.view import CompactedView, every_record
from schemas.events import Event
from schemas.topics import LARGEST_RECORD_BYTES, Topic


@dataclass
class Partition:
    """Slots from offset `low` on; None is a transaction marker."""

    low: int = 0
    slots: list[Record | None] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.low + len(self.slots)

    def read(self, start: int, end: int) -> list[Record]:
        return [slot for slot in self.slots[start - self.low : max(end - self.low, 0)] if slot is not None]

    def delete_before(self, offset: int) -> None:
        kept = max(self.low, min(offset, self.end))
        self.slots, self.low = self.slots[kept - self.low :], kept


class MemoryLog:
    """One installation's topics, all there unless `empty`. Thread-safe."""

    def __init__(self, settings: LogSettings | None = None, *, empty: bool = False) -> None:
        self.settings = settings or LogSettings(partitions=8)
        self.refusing = False
        """Set it to see NotAcknowledged: nothing is written then."""
        self.changed = threading.Condition()
        self._catalogue = self.settings.catalogue()
        self._topics: dict[str, list[Partition]] = {}
        self._keyless = itertools.count()
        self._owners: dict[str, int] = {}
        self._group_offsets: dict[tuple[str, Place], int] = {}
        self._groups: dict[str, MemoryGroup] = {}
        self.member_numbers = itertools.count()
        if not empty:
            self.create_topics()

    def producer(self) -> "MemoryProducer":
        return MemoryProducer(self)

    def transactions(self, transactional_id: str) -> "MemoryTransactions":
        return MemoryTransactions(self, transactional_id)

    def reader(
        self, topics: Sequence[Topic], *, partitions: Sequence[int] | None = None, start: Start = "beginning"
    ) -> "MemoryReader":
        return MemoryReader(self, topics, partitions=partitions, start=start)

    def membership(
        self, topics: Sequence[Topic], group_id: str, *, on_revoked: OnRevoked, work_timeout_s: float
    ) -> "MemoryMembership":
        return MemoryMembership(self, topics, group_id, on_revoked=on_revoked, work_timeout_s=work_timeout_s)

    def group(self, group_id: str) -> MemoryGroup:
        with self.changed:
            return self._groups.setdefault(group_id, MemoryGroup(self.settings.partitions))

    def lookup(self) -> "MemoryLookup":
        return MemoryLookup(self)

    def view(
        self,
        topics: Sequence[Topic],
        *,
        keep: Callable[[Record], bool] = every_record,
        on_change: Callable[[bytes, Record | None], None] | None = None,
    ) -> CompactedView:
        return CompactedView(
            self.settings, topics, keep=keep, on_change=on_change, open_reader=lambda: self.reader(topics)
        )

    def read_range(self, topic: str | Topic, partition: int, start: int, end: int) -> list[Record]:
        if start >= end:
            return []
        name = topic if isinstance(topic, str) else self._catalogue.name(topic)
        with self.changed:
            log_of_partition = self.partition((name, partition))
            if start < log_of_partition.low:
                raise HistoryCut(
                    f"{name} partition {partition} begins at {log_of_partition.low}, the read starts at {start}"
                )
            if end > log_of_partition.end:
                raise LogError(
                    f"{name} partition {partition} ends at {log_of_partition.end}, the range goes up to {end}"
                )
            return log_of_partition.read(start, end)

    def committed_offsets(
        self, group_id: str, topics: Sequence[Topic], partitions: Iterable[int]
    ) -> dict[Place, int | None]:
        numbers = list(partitions)
        places = [(self._catalogue.name(topic), number) for topic in topics for number in numbers]
        return {place: self._group_offsets.get((group_id, place)) for place in places}

    def commit_offsets(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        """What a consumer group would have done."""
        self._group_offsets |= {(group_id, place): offset for place, offset in offsets.items()}

    def end_offsets(self, topics: Sequence[Topic]) -> dict[Place, int]:
        return {place: self.partition(place).end for place in self.places(topics)}

    def create_topics(self) -> list[str]:
        missing = [name for topic in self._catalogue if (name := self._catalogue.name(topic)) not in self._topics]
        self._topics |= {name: [Partition() for _ in range(self.settings.partitions)] for name in missing}
        return missing

    def delete_records(self, before: Mapping[Place, int]) -> None:
        for name, _ in before:
            if self._catalogue.topic(name).policy == "compact":
                raise LogError(f"{name}: a compacted topic keeps the latest record of each key")
        with self.changed:
            for place, offset in before.items():
                self.partition(place).delete_before(offset)

    def places(self, topics: Sequence[Topic], partitions: Sequence[int] | None = None) -> list[Place]:
        names = [self._catalogue.name(topic) for topic in topics]
        for name in names:
            if name not in self._topics:
                raise TopicMissing(name)
        return [(name, number) for name in names for number in partitions or range(self.settings.partitions)]

    def partition(self, place: Place) -> Partition:
        if place[0] not in self._topics:
            raise TopicMissing(place[0])
        return self._topics[place[0]][place[1]]

    def append(self, items: Sequence[Outgoing]) -> list[Position]:
        """All items, or an error and none of them."""
        with self.changed:
            places = [self._place(item) for item in items]
            positions = [self._append(place, item) for place, item in zip(places, items, strict=True)]
            self.changed.notify_all()
        return positions

    def append_markers(self, places: Iterable[Place]) -> None:
        """The end of a transaction, in each partition that it wrote to."""
        with self.changed:
            for place in places:
                self.partition(place).slots.append(None)

    def fence(self, transactional_id: str) -> int:
        """A new owner's epoch."""
        with self.changed:
            self._owners[transactional_id] = self._owners.get(transactional_id, 0) + 1
            return self._owners[transactional_id]

    def owner_epoch(self, transactional_id: str) -> int:
        return self._owners[transactional_id]

    def _place(self, item: Outgoing) -> Place:
        name = self._catalogue.name(item.topic)
        if len(item.key or b"") + len(item.value or b"") > LARGEST_RECORD_BYTES:
            raise RecordTooLarge(f"a record for {name} is larger than {LARGEST_RECORD_BYTES} bytes")
        if self.refusing:
            raise NotAcknowledged(f"{name}: the memory log refuses")
        if item.partition is not None:
            number = item.partition
        elif item.key is not None:
            number = partition_of(item.key, self.settings.partitions)
        else:
            number = next(self._keyless) % self.settings.partitions
        self.partition((name, number))
        return name, number

    def _append(self, place: Place, item: Outgoing) -> Position:
        slots = self.partition(place)
        now_ms = time.time_ns() // 1_000_000
        record = Record(*place, slots.end, now_ms, item.key, item.value, tuple(item.headers))
        slots.slots.append(record)
        return record.position


class MemoryProducer:
    """`EventProducer` on a MemoryLog."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._closed = False

    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position:
        return self.publish_now(topic, key, event)

    async def publish_all(self, items: Sequence[Outgoing]) -> list[Position]:
        return [future.result() for future in [self.produce(item) for item in items]]

    def publish_now(self, topic: Topic, key: bytes, event: Event) -> Position:
        return self.produce(Outgoing.of(topic, key, event)).result()

    def produce(self, item: Outgoing) -> Future[Position]:
        future: Future[Position] = Future()
        try:
            if self._closed:
                raise NotAcknowledged("the producer is closed")
            future.set_result(self._log.append([item])[0])
        except LogError as error:
            future.set_exception(error)
        return future

    def close(self, timeout_s: float = 10) -> None:  # noqa: ARG002  # nothing is ever outstanding
        self._closed = True


class MemoryTransactions:
    """`TransactionalProducer` on a MemoryLog."""

    def __init__(self, log: MemoryLog, transactional_id: str) -> None:
        self._log = log
        self._id = transactional_id
        self._epoch = 0

    def open(self) -> None:
        self._epoch = self._log.fence(self._id)

    def commit(self, items: Sequence[Outgoing]) -> list[Position]:
        if not self._epoch:
            raise RuntimeError("open() comes before commit()")
        with self._log.changed:
            if self._epoch != self._log.owner_epoch(self._id):
                raise Fenced(f"another owner took over {self._id}")
            positions = self._log.append(items)
            self._log.append_markers({(at.topic, at.partition) for at in positions})
        return positions

    def close(self) -> None:
        self._epoch = 0


class MemoryReader:
    """`LogReader` on a MemoryLog."""

    def __init__(
        self,
        log: MemoryLog,
        topics: Sequence[Topic],
        *,
        partitions: Sequence[int] | None = None,
        start: Start = "beginning",
    ) -> None:
        self._log = log
        self._places = log.places(topics, partitions)
        begins = {place: log.partition(place).low for place in self._places}
        if start == "end":
            self._positions = self.end_offsets()
        elif start == "beginning":
            self._positions = begins
        else:
            self._positions = {place: start.get(place, begins[place]) for place in self._places}

    def poll(self, timeout_s: float, records_max: int = 500) -> list[Record]:
        with self._log.changed:
            self._log.changed.wait_for(lambda: not self.at_end(), timeout_s)
            records: list[Record] = []
            for place in self._places:
                records += self._take(place, records_max - len(records))
            return records

    def read_to_end(self) -> Iterator[Record]:
        ends = self.end_offsets()
        while any(self._positions[place] < end for place, end in ends.items()):
            yield from self.poll(0)

    def at_end(self) -> bool:
        return all(self._positions[place] >= end for place, end in self.end_offsets().items())

    def positions(self) -> dict[Place, int]:
        return dict(self._positions)

    def end_offsets(self) -> dict[Place, int]:
        return {place: self._log.partition(place).end for place in self._places}

    def close(self) -> None:
        """Nothing to end."""

    def _take(self, place: Place, records_max: int) -> list[Record]:
        partition, start = self._log.partition(place), self._positions[place]
        if start < partition.low:
            raise HistoryCut(f"{place[0]} partition {place[1]} begins at {partition.low}, the read starts at {start}")
        if start > partition.end:
            raise LogError(f"{place[0]} partition {place[1]} does not reach offset {start}")
        records = partition.read(start, partition.end)
        taken = records[: max(records_max, 0)]
        if len(taken) == len(records):
            self._positions[place] = partition.end
        elif taken:
            self._positions[place] = taken[-1].offset + 1
        return taken


class MemoryMembership:
    """`KafkaMembership` on a MemoryLog. Partition numbers are shared out, so partition n of every topic stays together."""

    def __init__(
        self, log: MemoryLog, topics: Sequence[Topic], group_id: str, *, on_revoked: OnRevoked, work_timeout_s: float
    ) -> None:
        self._log = log
        self._topics = topics
        self._group_id = group_id
        self._on_revoked = on_revoked
        self._work_timeout_s = work_timeout_s
        self._places = log.places(topics)
        self._group = log.group(group_id)
        self._member = next(log.member_numbers)
        self._readers: dict[int, MemoryReader] = {}

    def poll(self, timeout_s: float, records_max: int) -> list[Record]:
        with self._log.changed:
            self._rebalance()
            self._log.changed.wait_for(self._has_work, timeout_s)
            self._rebalance()
            records: list[Record] = []
            for reader in self._readers.values():
                records += reader.poll(0, records_max - len(records))
            return records

    def positions(self) -> dict[Place, int]:
        return {place: at for reader in self._readers.values() for place, at in reader.positions().items()}

    def commit(self, offsets: Mapping[Place, int]) -> bool:
        with self._log.changed:
            held = self._group.held(self._member)
            own = {place: offset for place, offset in offsets.items() if place[1] in held}
            self._log.commit_offsets(self._group_id, own)
            return bool(own)

    def close(self) -> None:
        with self._log.changed:
            if self._readers:
                self._revoke(set(self._readers))
            self._group.leave(self._member)
            self._log.changed.notify_all()

    def _rebalance(self) -> None:
        if not self._group.renew(self._member, self._work_timeout_s) and self._readers:  # it was put out of the group
            self._revoke(set(self._readers))
        surplus = set(self._readers) - self._group.share(self._member)
        if surplus:
            self._revoke(surplus)
        for number in sorted(self._group.take(self._member)):
            committed = self._log.committed_offsets(self._group_id, self._topics, [number])
            start = {place: offset for place, offset in committed.items() if offset is not None}
            self._readers[number] = self._log.reader(self._topics, partitions=[number], start=start)

    def _revoke(self, numbers: set[int]) -> None:
        self._on_revoked([place for place in self._places if place[1] in numbers])
        for number in numbers:
            del self._readers[number]
        self._group.release(self._member, numbers)
        self._log.changed.notify_all()

    def _has_work(self) -> bool:
        return self._group.share(self._member) != set(self._readers) or any(
            not reader.at_end() for reader in self._readers.values()
        )


class MemoryLookup:
    """`FactLookup` on a MemoryLog."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]:
        ranges = {at: self._log.read_range(at.topic, at.partition, at.offset, at.offset + 1) for at in positions}
        for at, records in ranges.items():
            if not records:
                raise HistoryCut(f"the log holds no record at {at}")
        return {at: records[0] for at, records in ranges.items()}

    def close(self) -> None:
        """Nothing to end."""

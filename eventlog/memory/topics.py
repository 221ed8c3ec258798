"""The content of a log in memory: partitions with their records, owners of transactional ids, offsets of groups."""

import itertools
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from claw_r1.eventlog.errors import HistoryCut, LogError, NotAcknowledged, RecordTooLarge, TopicMissing
from claw_r1.eventlog.memory.consumer_group import MemoryGroup
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing, Place, Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import LARGEST_RECORD_BYTES, Topic


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


class MemoryTopics:
    """One installation's topics, all there unless `empty`, and the offsets of its consumer groups. Thread-safe."""

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

    def group(self, group_id: str) -> MemoryGroup:
        with self.changed:
            return self._groups.setdefault(group_id, MemoryGroup(self.settings.partitions))

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
        """Commits offsets for a consumer group that is not there."""
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

"""The ways of reading a log in memory."""

from collections.abc import Iterable, Iterator, Sequence

from claw_r1.eventlog.errors import HistoryCut, LogError
from claw_r1.eventlog.memory.topics import MemoryTopics
from claw_r1.eventlog.protocols import Start
from claw_r1.eventlog.records import Place, Position, Record
from claw_r1.schemas.topics import Topic


class MemoryReader:
    """`LogReader` on a MemoryLog."""

    def __init__(
        self,
        log: MemoryTopics,
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
        batch = records[: max(records_max, 0)]
        if len(batch) == len(records):
            self._positions[place] = partition.end
        elif batch:
            self._positions[place] = batch[-1].offset + 1
        return batch


class MemoryLookup:
    """`FactLookup` on a MemoryLog."""

    def __init__(self, log: MemoryTopics) -> None:
        self._log = log

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]:
        ranges = {at: self._log.read_range(at.topic, at.partition, at.offset, at.offset + 1) for at in positions}
        for at, records in ranges.items():
            if not records:
                raise HistoryCut(f"the log holds no record at {at}")
        return {at: records[0] for at, records in ranges.items()}

    def close(self) -> None:
        """Nothing to end."""

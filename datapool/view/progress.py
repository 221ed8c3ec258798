"""A view's progress in reading, for any thread to ask while the follower's thread, the only one that may use a reader,
goes on."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.protocols import Reader
from claw_r1.eventlog.records import Place, Record


class ReadProgress(NamedTuple):
    """Answers are there at any time; they are whole as of the last look when `caught_up`."""

    rows: int
    """Taken in since the start."""
    offsets: Mapping[Place, int]
    """By full topic name and partition, the offset that reading goes on at."""
    ends: Mapping[Place, int]
    """The ends of the partitions at the last look; none before the first."""

    @property
    def caught_up(self) -> bool:
        """All records that stood in the partitions at the last look were taken in."""
        return bool(self.ends) and all(self.offsets.get(place, 0) >= end for place, end in self.ends.items())


class WatchedReader:
    """A reader that reports progress between two polls. `look`, from any thread: the next
    poll requests the ends."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._look = True
        self.offsets: Mapping[Place, int] = reader.positions()
        self.ends: Mapping[Place, int] = {}

    def look(self) -> None:
        self._look = True

    def poll(self, timeout_s: float, records_max: int = 500) -> list[Record]:
        """Polls the reader; the next poll confirms the earlier records."""
        self.offsets = self._reader.positions()
        if self._look:
            self._look = False
            with suppress(LogError):  # a broker that is away: reading outlives it, and so does the last look
                self.ends = self._reader.end_offsets()
        return self._reader.poll(timeout_s, records_max)

    def read_to_end(self) -> Iterator[Record]:
        return self._reader.read_to_end()

    def at_end(self) -> bool:
        return self._reader.at_end()

    def positions(self) -> dict[Place, int]:
        return self._reader.positions()

    def end_offsets(self) -> dict[Place, int]:
        return self._reader.end_offsets()

    def close(self) -> None:
        self._reader.close()

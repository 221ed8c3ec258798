"""Copies of the pool's rows of partitions, in files that outlive a worker, and of partitions that others own: so that a takeover
reads a tail instead of everything.

Invariant: a saved copy has only committed rows, of a moment not before the offsets it is saved with. Rereading
rows from there, in order, leads to the pool; a takeover does that after the owner is fenced. Losing a copy costs time
and nothing else.
"""

import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec
import structlog
from msgspec import Raw

from claw_r1.datapool.pool_file import PoolFile, file_path
from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.kafka.admin import end_offsets, topics_id
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.keys import group_key, parts
from claw_r1.schemas.topics import GROUPS, POSITIONS, STEPS, TRAJECTORIES
from claw_r1.streams import cold_store
from claw_r1.streams.cold_store import SqliteColdStore
from claw_r1.streams.errors import StoreFailed
from claw_r1.streams.partition import groups
from claw_r1.streams.partition.groups import ColdRow

log = structlog.get_logger()

CHUNK_ROWS = 1000
SAVED_ROWS = 50_000
"""A copy being read is saved after this many rows: the cost of a kill, and the size of sqlite's journal."""
SAVED_EVERY_S = 86400.0
"""A copy of which nothing changes is saved once a day, so that its file does not grow too old."""
LOCK_PATIENCE_S = 2.0
"""How long a takeover waits for a neighbour on this machine that gives the partition up."""
LOCK_POLL_S = 0.05
LOOK_S = 1.0
NO_GROUP = b""
"""The group of a position. A group whose id is empty shares it, which is harmless: `restore`
passes positions over."""
POOL = (STEPS, TRAJECTORIES, GROUPS, POSITIONS)


@dataclass(slots=True)
class PoolCopy:
    """The rows of one partition as far as they are read; nothing is decoded and no group is in memory."""

    store: SqliteColdStore = field(default_factory=SqliteColdStore)
    read: dict[Place, int] = field(default_factory=dict)
    """The offset that comes next. The owner's copy may have later rows, too."""
    ends: Mapping[Place, int] = field(default_factory=dict)
    """The ends of the log, no row of the store being behind them; else those are in `read`."""
    file: PoolFile | None = None
    _chunk: list[ColdRow] = field(default_factory=list)
    _saved_s: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, file: PoolFile, ends: Mapping[Place, int]) -> "PoolCopy":
        """A copy as this file has it; else an empty one, in a new file where one can be made."""
        store = SqliteColdStore()
        offsets = file.restore(store, lambda: ends, partial(_check_reached, ends))
        if offsets is not None:
            return cls(store, dict(offsets), file=file)
        store = SqliteColdStore()
        try:
            file.keep(store, {})
        except OSError as error:
            log.warning("streams_copy_without_file", file=str(file.path), error=str(error))
        return cls(store, file=file)

    def add(self, topic: str, record: Record) -> None:
        """One more row. topic: `Topic.name`."""
        self.read[record.topic, record.partition] = record.offset + 1
        self._chunk.append(_row(topic, record))
        if len(self._chunk) >= CHUNK_ROWS:
            self.write()

    def write(self) -> None:
        """Puts what is in memory into the store. Raises StoreFailed."""
        self.store.write(self._chunk)
        self._chunk = []
        if self.store.unsaved >= SAVED_ROWS:
            self.save()

    def save(self) -> None:
        """Keeps the store's rows, all committed, in the file, if it has one. Raises StoreFailed."""
        is_due = self.store.unsaved or time.monotonic() - self._saved_s > SAVED_EVERY_S
        if self.file is not None and self.store.path == self.file.path and is_due:
            reached = [(*place, at) for place, at in (self.ends or self.read).items()]
            self.file.keep(self.store, self.read, lambda: Raw(msgspec.msgpack.encode(reached)))
            self._saved_s = time.monotonic()

    def caught_up(self) -> None:
        """Notes that it has all rows that are committed now."""
        if self.file is not None:
            self.file.caught_up()

    def close(self, *, is_committed: bool = True) -> None:
        """Lets the file go. is_committed: whether every row of the store is; else it is as it was saved last."""
        if is_committed:
            with suppress(StoreFailed):
                self.write()
                self.save()
        if self.file is None:
            self.store.close()
        else:
            self.file.end(self.store)


def _check_reached(ends: Mapping[Place, int], packed: Raw) -> None:
    """Raises ValueError if the log ends before the file's offsets: the broker was restored to an earlier state."""
    for topic, partition, end in msgspec.msgpack.decode(packed, type=list[tuple[str, int, int]] | None) or ():
        if end > ends.get((topic, partition), 0):
            raise ValueError("the topics end before it")


def _row(topic: str, record: Record) -> ColdRow:
    key = record.key or b""
    if topic in (STEPS.name, TRAJECTORIES.name):
        return ColdRow(topic, key, group_key(parts(key)[0]), record.value)
    if topic == GROUPS.name:
        return ColdRow(topic, key, key, record.value, touched_us=0)
    return ColdRow(topic, key, NO_GROUP, record.value)


def names_of(settings: LogSettings) -> dict[str, str]:
    """Returns the pool's topics: full name -> `Topic.name`."""
    return {settings.catalogue().name(topic): topic.name for topic in POOL}


def read_on(settings: LogSettings, copies: dict[int, PoolCopy]) -> int:
    """Reads these copies on to the end of the pool; the rows read. Raises BrokerUnreachable, TopicMissing, StoreFailed."""
    topics, rows = names_of(settings), 0
    with open_pool(settings, copies) as reader:
        for record in reader.read_to_end():
            copies[record.partition].add(topics[record.topic], record)
            rows += 1
    for copy in copies.values():
        copy.write()
    return rows


def open_pool(settings: LogSettings, copies: dict[int, PoolCopy]) -> LogReader:
    """A reader of what these copies lack."""
    start = {place: offset for copy in copies.values() for place, offset in copy.read.items()}
    return LogReader(settings, POOL, partitions=sorted(copies), start=start)


def opened(settings: LogSettings, numbers: Collection[int], patience_s: float = 0.0) -> dict[int, PoolCopy]:
    """Copies of these partitions, to read on: as files have them, or empty. Raises BrokerUnreachable, TopicMissing.

    patience_s: how long to wait, in all, for another process that has some of the files.
    """
    if settings.views_dir is None or not numbers:
        return {number: PoolCopy() for number in numbers}
    log_id, ends = topics_id(settings, POOL), end_offsets(settings, POOL)
    modules = [cold_store, groups, sys.modules[__name__]]
    deadline_s, copies = time.monotonic() + patience_s, dict[int, PoolCopy]()
    for number in numbers:
        path = file_path(settings.views_dir, settings.catalogue(), f"streams{number}.", modules)
        file = PoolFile(path, log_id)
        with suppress(OSError):  # what opens it says so
            while not file.locked() and time.monotonic() < deadline_s:
                time.sleep(LOCK_POLL_S)
        copies[number] = PoolCopy.of(file, ends)
    return copies


def beside(assigned: Collection[int], partitions: int) -> set[int]:
    """The partitions that may come to a worker when one member leaves the group: its range
    moves by at most one partition more than it has. A worker without any copies all."""
    if not assigned:
        return set(range(partitions))
    reach = len(assigned) + 1
    return {*range(max(0, min(assigned) - reach), min(partitions, max(assigned) + reach + 1))} - {*assigned}


class Standby:
    """The copies that a worker holds, and the thread that reads on. The methods block, and are
    called one at a time."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._topics = names_of(settings)
        self._copies: dict[int, PoolCopy] = {}
        self._follower: Follower | None = None

    def take(self, numbers: Collection[int]) -> dict[int, PoolCopy]:
        """Gives out copies of these partitions, as far as it has read any; reading stops until `hold`.
        If the thread ended by itself there are none: rows may have been erased since, without notice."""
        follower, self._follower = self._follower, None
        if follower is not None and (not follower.stop() or follower.error is not None):
            for copy in self._copies.values():
                copy.close(is_committed=False)
            self._copies = {}
        return {number: self._copies.pop(number) for number in numbers if number in self._copies}

    def hold(self, numbers: Collection[int]) -> None:
        """Reads these partitions on, and no others. Raises BrokerUnreachable."""
        self.take(())
        for number in self._copies.keys() - {*numbers}:
            self._copies.pop(number).close()
        self._copies |= opened(self._settings, [number for number in numbers if number not in self._copies])
        if self._copies:
            self._follower = Follower(open_pool(self._settings, self._copies), self._add)
            self._follower.start()

    @property
    def copied(self) -> int:
        """The number of partitions of which something is copied and read on."""
        return sum(bool(copy.read) for copy in list(self._copies.values())) if self.is_reading else 0

    @property
    def is_reading(self) -> bool:
        """Returns whether the thread is there that it needs."""
        return not self._copies or (self._follower is not None and self._follower.error is None)

    def wait_caught_up(self, timeout_s: float) -> None:
        """Returns when every row that is committed now is copied. Raises NotCaughtUp, LogError."""
        if self._follower is not None:
            self._follower.wait_caught_up(timeout_s)

    def look(self) -> None:
        """Looks whether the copies have all rows of now, so that their files are known to be as young."""
        copies = list(self._copies.values())  # those that are begun meanwhile have not
        with suppress(LogError):
            self.wait_caught_up(LOOK_S)
            for copy in copies:
                copy.caught_up()

    def _add(self, record: Record) -> None:
        self._copies[record.partition].add(self._topics[record.topic], record)

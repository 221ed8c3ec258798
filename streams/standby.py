"""Copies of the pool's rows of partitions that other workers own, read as their owners write them, so that a takeover reads
a tail instead of everything.

Invariant: only committed rows are copied, and a copy goes with the offsets it was read to. So it is the pool of an earlier
moment; who takes it over reads on from there, after the owner is fenced. Losing a copy costs time and nothing else.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.keys import group_key, parts
from claw_r1.schemas.topics import GROUPS, POSITIONS, STEPS, TRAJECTORIES
from claw_r1.streams.cold_store import SqliteColdStore
from claw_r1.streams.partition.groups import ColdRow

CHUNK_ROWS = 1000
NO_GROUP = b""
"""The group of a position. A group whose id is empty shares it, which is harmless: `restore` passes positions over."""
POOL = (STEPS, TRAJECTORIES, GROUPS, POSITIONS)


@dataclass(slots=True)
class PoolCopy:
    """The rows of one partition as far as they are read; nothing is decoded and no group is in memory."""

    store: SqliteColdStore = field(default_factory=SqliteColdStore)
    read: dict[Place, int] = field(default_factory=dict)
    """The offset that comes next."""
    _chunk: list[ColdRow] = field(default_factory=list)

    def add(self, topic: str, record: Record) -> None:
        """One more row. topic: `Topic.name`."""
        self.read[record.topic, record.partition] = record.offset + 1
        self._chunk.append(_row(topic, record))
        if len(self._chunk) >= CHUNK_ROWS:
            self.write()

    def write(self) -> None:
        """Puts what is in memory into the store."""
        self.store.write(self._chunk)
        self._chunk = []


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


def read_on(settings: LogSettings, copies: dict[int, PoolCopy]) -> None:
    """Reads these copies on to the end of the pool. Raises BrokerUnreachable, TopicMissing."""
    topics = names_of(settings)
    with open_pool(settings, copies) as reader:
        for record in reader.read_to_end():
            copies[record.partition].add(topics[record.topic], record)
    for copy in copies.values():
        copy.write()


def open_pool(settings: LogSettings, copies: dict[int, PoolCopy]) -> LogReader:
    """A reader of what these copies lack."""
    start = {place: offset for copy in copies.values() for place, offset in copy.read.items()}
    return LogReader(settings, POOL, partitions=sorted(copies), start=start)


def beside(assigned: Collection[int], partitions: int) -> set[int]:
    """The partitions that may come to a worker when one member leaves the group: its range moves by one partition more than it
    has at most. Who has none waits for any."""
    if not assigned:
        return set(range(partitions))
    reach = len(assigned) + 1
    return {*range(max(0, min(assigned) - reach), min(partitions, max(assigned) + reach + 1))} - {*assigned}


class Standby:
    """The copies that a worker holds, and the thread that reads on. The methods block, and are called one at a time."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._topics = names_of(settings)
        self._copies: dict[int, PoolCopy] = {}
        self._follower: Follower | None = None

    def take(self, numbers: Collection[int]) -> dict[int, PoolCopy]:
        """Gives out copies of these partitions, as far as it has read any; reading stops until `hold`. Where the thread came to an
        end by itself there are none: rows may have been erased since, which nobody would tell them."""
        follower, self._follower = self._follower, None
        if follower is not None and (not follower.stop() or follower.error is not None):
            self._copies = {}
        return {number: self._copies.pop(number) for number in numbers if number in self._copies}

    def hold(self, numbers: Collection[int]) -> None:
        """Reads these partitions on, and no others. Raises BrokerUnreachable."""
        self.take(())
        for number in self._copies.keys() - {*numbers}:
            self._copies.pop(number).store.close()
        self._copies |= {number: PoolCopy() for number in numbers if number not in self._copies}
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

    def _add(self, record: Record) -> None:
        self._copies[record.partition].add(self._topics[record.topic], record)

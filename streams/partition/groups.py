"""The groups of a partition: in memory those on which a reactor may have to act and the last ones at rest, without
tokens; the others only in the cold store, a copy of their part of the pool. A late fact loads its group.

Invariant: a group leaves memory only when every row of it is in the cold store. Pure but for that store, a seam.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from claw_r1.datapool.fold.project import GroupImage, PoolRecord, PoolRow, Rows, image
from claw_r1.datapool.fold.readiness import is_evicted
from claw_r1.datapool.fold.restore import restore
from claw_r1.datapool.fold.state import GroupState
from claw_r1.schemas.codec import NOTHING_PACKED, Packed, decode, encode
from claw_r1.schemas.errors import UndecodableRecord, UnknownSchemaId
from claw_r1.schemas.events import Event, GroupRecord, TrajectoryRecord
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import GROUPS
from claw_r1.streams.errors import RowOfAnotherVersion, StoreFailed
from claw_r1.streams.reactors import waits

RESTING_MAX = 200
"""Groups at rest that stay in memory: late facts come soon or not at all."""
UNTOUCHED_MAX = 50
"""Old groups that one look takes from the cold store: bounds the time in which nothing else of the worker moves."""

LONG_ROW_BYTES = 16 << 10
"""A longer row, which is written with every flush of its group, is put away without what
follows from other rows."""
FOLLOWING: Mapping[type[PoolRecord], Packed] = {
    TrajectoryRecord: {"calls": (0, ()), "offsets": (0, ())},
    GroupRecord: {"members": (0, ())},
}


class ColdRow(NamedTuple):
    """One row of the pool; value None removes it. group: `claw_r1.schemas.keys.group_key`."""

    topic: str
    key: bytes
    group: bytes
    value: bytes | None
    touched_us: int | None = None
    """The time of the last fact of a group that may be evicted one day; 0: somewhere in the value. None: never looked
    for by age."""


class ColdStore(Protocol):
    """The rows of groups that memory need not hold; `claw_r1.streams.cold_store.SqliteColdStore` is one."""

    def write(self, rows: Iterable[ColdRow]) -> None:
        """The latest row of each key wins."""

    def group(self, group: bytes) -> list[bytes]:
        """The rows of a group; none: the group is not known."""

    def untouched(self, before_us: int, limit: int) -> list[bytes]:
        """Rows last touched at or before that time, the longest untouched first."""

    def touch(self, topic: str, key: bytes, touched_us: int | None) -> None:
        """Notes when a row was last touched, where that was not known; None: never look for it by age again."""

    def close(self) -> None:
        """Give its space back. Idempotent."""


class Groups:
    """States of groups, and the images of what is written of them. Without a cold store every
    group stays in memory."""

    def __init__(
        self, states: Mapping[str, GroupState], waiting: Iterable[str], cold: ColdStore | None, resting_max: int
    ) -> None:
        """waiting: ids of groups a reactor may act on. cold: has the rows of all groups that are not in `states`."""
        self.states: dict[str, GroupState] = dict(states)
        self.images: dict[str, GroupImage] = {}
        self._waiting = set(waiting)
        self._resting: dict[str, None] = {}
        self._resting_max = resting_max
        self._cold = cold

    def has(self, group_id: str) -> bool:
        """Returns whether the group has a state; one that was put away is in memory again afterwards. Raises as
        `stored_row`."""
        if group_id not in self.states and self._cold is not None:
            self.states |= restore(map(stored_row, self._cold.group(group_key(group_id))))
        return group_id in self.states

    def image(self, group_id: str) -> GroupImage:
        """Returns the image of a group that has a state."""
        if group_id not in self.images:
            self.images[group_id] = image(self.states[group_id])
        return self.images[group_id]

    def settle(self, rows: Mapping[str, Rows]) -> None:
        """After a batch: its rows by group are in the cold store, and what rests longest leaves the memory."""
        for group_id in rows:
            self._watch(self.images[group_id].record)
        if self._cold is None:
            return
        self._cold.write([row for group_id, of_group in rows.items() for row in _cold_rows(group_id, of_group)])
        while len(self._resting) > self._resting_max:
            oldest = next(iter(self._resting))
            del self._resting[oldest], self.states[oldest], self.images[oldest]

    def _watch(self, record: GroupRecord) -> None:
        self._resting.pop(record.group_id, None)
        if waits(record):
            self._waiting.add(record.group_id)
        else:
            self._waiting.discard(record.group_id)
            self._resting[record.group_id] = None

    def waiting(self, changing: Collection[str]) -> list[GroupImage]:
        """Groups that only time can move on, as they are written; but for those that are changing."""
        idle = [group_id for group_id in sorted(self._waiting) if group_id not in changing]
        return [self.image(group_id) for group_id in idle if self.has(group_id)]

    def untouched(self, before_us: int, changing: Collection[str]) -> list[GroupRecord]:
        """Groups without a fact since, as they are written, the oldest first; at most `UNTOUCHED_MAX` are looked at."""
        if self._cold is None:
            return []
        old: list[GroupRecord] = []
        for value in self._cold.untouched(before_us, UNTOUCHED_MAX):
            record = stored_row(value)
            assert isinstance(record, GroupRecord)  # only these have an age
            touched_us = _touched_us(record)
            if touched_us is None or touched_us > before_us:
                self._cold.touch(GROUPS.name, group_key(record.group_id), touched_us)
            elif record.group_id not in changing:
                old.append(record)
        return old

    def close(self) -> None:
        """Give the cold store's space back."""
        if self._cold is not None:
            self._cold.close()


def stored_row(value: bytes) -> Event:
    """A row of a cold store decoded. Raises RowOfAnotherVersion or StoreFailed: the fact that asks for it is no poison."""
    try:
        return decode(value)
    except UnknownSchemaId as error:
        raise RowOfAnotherVersion(
            f"the pool has rows that a newer version wrote ({error}): start that version, or write by schemas that both "
            "know (CLAW_SCHEMAS_UNTIL, docs/cluster.md) and rebuild"
        ) from error
    except UndecodableRecord as error:
        raise StoreFailed(
            f"a stored row of the pool is damaged ({error}): without its files in CLAW_LOG_VIEWS_DIR a worker reads the log"
        ) from error


def _cold_rows(group_id: str, rows: Rows) -> list[ColdRow]:
    group = group_key(group_id)
    return [
        ColdRow(key.topic, key.key, group, row and _cold(row), row and _touched_us(row.record))
        for key, row in rows.items()
    ]


def _cold(row: PoolRow) -> bytes:
    """The value; of a long row the part that restores a state, without that repeated in its steps or members."""
    if len(row.value) <= LONG_ROW_BYTES:
        return row.value
    return encode(row.record, FOLLOWING.get(type(row.record), NOTHING_PACKED))


def _touched_us(record: PoolRecord) -> int | None:
    """The time by which retention finds a row: a group's last sign of life; stubs are never looked for."""
    return record.last_progress_us if isinstance(record, GroupRecord) and not is_evicted(record) else None

"""Groups and trajectories of a view, by number: in the file that its steps stand in, and the latest of them decoded in memory,
up to a bound.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from claw_r1.datapool.view.store import StepStore
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord

PooledRow = GroupRecord | TrajectoryRecord | StepRecord

if TYPE_CHECKING:
    from claw_r1.datapool.view.listing.columns import RowKind


class PoolRecords(Protocol):
    """The place of groups and trajectories, by number. Steps are in the store, which is notified."""

    def reserve(self, kind: "RowKind", ids: tuple[str, ...], owner: int = 0) -> int:
        """The number of a row that may come later. owner: that of what it is in."""

    def put_group(self, number: int, record: GroupRecord, value: bytes, members: list[int]) -> None:
        """members: numbers of the trajectories that the row names."""

    def put_trajectory(self, number: int, record: TrajectoryRecord, value: bytes) -> None: ...

    def put_step(self, number: int, record: StepRecord, trajectory: int) -> None:
        """number: that of the store, which has its bytes."""

    def drop(self, kind: "RowKind", number: int) -> None:
        """A tombstone, or a group that is forgotten."""

    def record(self, kind: "RowKind", number: int) -> PooledRow | None:
        """The row of a group or a trajectory; None where there is none."""

    def snapshot(self) -> bytes:
        """Returns what `restore` takes, beside the store."""

    def restore(self, packed_snapshot: bytes) -> None:
        """Take the place of these, which are none. Raises msgspec.DecodeError."""

    @property
    def size(self) -> int:
        """Rows that ever had a number."""

    @property
    def gone(self) -> int:
        """The number of those that have no row any more, whose numbers and ids are kept all the same."""


class CachedRecords:
    """`PoolRecords` for groups and their members only: nothing can be filtered. Not thread-safe."""

    gone = 0
    """A number costs nothing once its row is gone."""

    def __init__(self, store: StepStore, bytes_max: int) -> None:
        """bytes_max: of rows that stay decoded, counted as they stand in the log; as objects they take a few times as much."""
        self._store, self._bytes_max, self._bytes = store, bytes_max, 0
        self._decoded: OrderedDict[tuple[RowKind, int], tuple[PooledRow, int]] = OrderedDict()
        self.size = 0

    def reserve(self, kind: "RowKind", ids: tuple[str, ...], owner: int = 0) -> int:  # noqa: ARG002  # others need it
        self.size += 1
        return self.size - 1

    def put_group(self, number: int, record: GroupRecord, value: bytes, members: list[int]) -> None:  # noqa: ARG002  # as above
        self._put("groups", number, record, value)

    def put_trajectory(self, number: int, record: TrajectoryRecord, value: bytes) -> None:
        self._put("trajectories", number, record, value)

    def put_step(self, number: int, record: StepRecord, trajectory: int) -> None:
        """The store has it."""

    def drop(self, kind: "RowKind", number: int) -> None:
        self._forget(kind, number)
        if kind != "steps":
            self._store.unlist(kind, number)

    def record(self, kind: "RowKind", number: int) -> PooledRow | None:
        if (cached := self._decoded.get((kind, number))) is not None:
            return cached[0]
        value = self._store.listed(kind, number)
        if value is None:
            return None
        record = decode(value)
        assert isinstance(record, PooledRow)  # nothing else was put
        self._remember(kind, number, record, len(value))
        return record

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.size)

    def restore(self, packed_snapshot: bytes) -> None:
        self.size = msgspec.msgpack.decode(packed_snapshot, type=int)

    def _put(self, kind: "RowKind", number: int, record: PooledRow, value: bytes) -> None:
        self._store.list_rows(kind, [(number, value)])
        self._remember(kind, number, record, len(value))

    def _remember(self, kind: "RowKind", number: int, record: PooledRow, size: int) -> None:
        self._forget(kind, number)
        self._decoded[kind, number] = record, size
        self._bytes += size
        while self._bytes > self._bytes_max and len(self._decoded) > 1:
            _, (_, least) = self._decoded.popitem(last=False)
            self._bytes -= least

    def _forget(self, kind: "RowKind", number: int) -> None:
        if (cached := self._decoded.pop((kind, number), None)) is not None:
            self._bytes -= cached[1]


def words_of(record: PooledRow) -> Sequence[str | None]:
    """Returns the fields of a record, beside ids, in which a text is looked for."""
    if isinstance(record, StepRecord):
        curation = record.curation
        return (curation.note, *record.tags, *curation.tags) if curation else record.tags
    metadata = record.metadata if isinstance(record, TrajectoryRecord) else None
    return record.task, metadata, *record.tags

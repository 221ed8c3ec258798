"""Rows of the pool, by group, and whether a group's rows are of one moment: bytes in, records out.
They are in a store on disk (`records.py`); a listing view adds columns, which filters and lists scan.

Invariant: a group is whole only when every member's row has the digest that the group names, and that row names the digests
of all its steps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

from claw_r1.datapool.batch.candidates import OVER
from claw_r1.datapool.batch.rewards import slot_name
from claw_r1.datapool.digests import record_digest, row_digest, rows_digest
from claw_r1.datapool.fold.readiness import is_evicted
from claw_r1.datapool.view.records import CachedRecords, PoolRecords
from claw_r1.datapool.view.store import Digests, StepStore, as_bytes, as_text
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import GroupMember, GroupRecord, StepRecord, TrajectoryRecord
from claw_r1.schemas.keys import parts
from claw_r1.schemas.topics import GROUPS, STEPS, TRAJECTORIES

if TYPE_CHECKING:
    from claw_r1.datapool.view.listing.tables import PoolTables

STEP_IDS = 3
"""The ids of a step's key. Pools of fold versions before 11 have longer ones, of rows that
held tokens a second time."""
CACHE_BYTES = 4 << 20
KeepGroup = Callable[[GroupRecord], bool]


@dataclass(slots=True)
class TrajectoryRows:
    """The number by which the record is found, and the digest of its bytes as they stand in the log."""

    number: int
    digest: str = ""


@dataclass(slots=True)
class GroupRows:
    number: int
    trajectories: dict[str, TrajectoryRows] = field(default_factory=dict)
    whole: bool | None = None
    """None: not looked at since the last change."""
    evicted: bool = False
    """Its stub was read: its rows in other topics are erased, too."""


class GroupSnapshot(Struct, array_like=True):
    """A group in memory. Ids are bytes, since text may hold what is no Unicode."""

    group_id: bytes
    number: int
    whole: bool
    """False: to be examined; newer code may find it whole."""
    evicted: bool
    trajectories: list[tuple[bytes, int, str]]
    """Id, number, digest."""


class RowsSnapshot(Struct, array_like=True):
    """The meaning of rows in a store."""

    groups: list[GroupSnapshot]
    reward_slots: list[bytes]
    fresh: int
    """`StepStore.fresh`."""
    records: bytes
    """The own snapshot of `PoolRecords`."""


class PoolRows:
    """The latest row per key, without those of groups that are not kept. Not thread-safe."""

    def __init__(self, keep: KeepGroup | None = None, *, listed: bool = False, cache_bytes: int = CACHE_BYTES) -> None:
        """listed: with the columns that filters and lists need. cache_bytes: of one that is not, the most that stays decoded."""
        self.store = StepStore()
        self._tables = _tables(self.store) if listed else None
        self.records: PoolRecords = self._tables or CachedRecords(self.store, cache_bytes)
        self._keep = keep
        self._groups: dict[str, GroupRows] = {}
        self.reward_slots: set[str] = set()
        """`source/name` of every slot that a row ever had with a reward, or with a scorer that gave up."""
        self._offered: list[GroupRecord] | None = None
        """Whole groups in order of id; None: not looked for since the last change."""

    def snapshot(self) -> RowsSnapshot:
        """Returns what `restore` takes; the rows themselves are in the store."""
        return RowsSnapshot(
            groups=[
                GroupSnapshot(
                    as_bytes(group_id),
                    group.number,
                    bool(group.whole),
                    group.evicted,
                    [(as_bytes(name), rows.number, rows.digest) for name, rows in group.trajectories.items()],
                )
                for group_id, group in self._groups.items()
            ],
            reward_slots=list(map(as_bytes, self.reward_slots)),
            fresh=self.store.fresh,
            records=self.records.snapshot(),
        )

    def restore(self, snapshot: RowsSnapshot) -> None:
        """Take the place of these rows, which are none, with the store that was saved with the snapshot."""
        self.records.restore(snapshot.records)
        self._groups = {
            as_text(group.group_id): GroupRows(
                group.number,
                {as_text(name): TrajectoryRows(number, digest) for name, number, digest in group.trajectories},
                group.whole or None,
                group.evicted,
            )
            for group in snapshot.groups
        }
        self.reward_slots = set(map(as_text, snapshot.reward_slots))
        self.store.fresh = snapshot.fresh

    @property
    def tables(self) -> "PoolTables":
        """The columns. Raises ValueError for a view that is not listed."""
        if self._tables is None:
            raise ValueError("this view of the pool is not listed: make it with listed=True")
        return self._tables

    def apply(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Take one row in. topic: `Topic.name`; a None value removes, and makes no group known. Raises UndecodableRecord."""
        ids = (as_text(key),) if topic == GROUPS.name else parts(key)
        group = self._groups.get(ids[0]) if value is None else self._group_of(ids[0])
        if group is None or len(ids) > STEP_IDS:
            return
        group.whole = self._offered = None
        if topic == GROUPS.name:
            self._apply_group(group, ids[0], value)
            return
        value = None if group.evicted else value
        if topic == TRAJECTORIES.name and value is None:
            if (rows := group.trajectories.pop(ids[1], None)) is not None:
                self.records.drop("trajectories", rows.number)
        elif topic == TRAJECTORIES.name and value is not None:
            self._note_slots(self._apply_trajectory(self._make_rows(group, ids), value))
        elif topic == STEPS.name:
            self._note_slots(self._apply_step(group, ids, value))

    def _note_slots(self, row: TrajectoryRecord | StepRecord | None) -> None:
        slots = (slot for slot in row.rewards if (slot.value, slot.failed) != (None, None)) if row is not None else ()
        self.reward_slots.update(map(slot_name, slots))

    def _group_of(self, group_id: str) -> GroupRows | None:
        """Returns the group that a row belongs to; None: it was forgotten."""
        group = self._groups.get(group_id)
        if group is None and not self.store.is_forgotten(group_id):
            group = self._groups[group_id] = GroupRows(self.records.reserve("groups", (group_id,)))
        return group

    def _make_rows(self, group: GroupRows, ids: tuple[str, ...]) -> TrajectoryRows:
        rows = group.trajectories.get(ids[1])
        if rows is None:
            number = self.records.reserve("trajectories", ids[:2], group.number)
            rows = group.trajectories[ids[1]] = TrajectoryRows(number)
        return rows

    def _apply_group(self, group: GroupRows, group_id: str, value: bytes | None) -> None:
        record = None if value is None else decode(value)
        assert record is None or isinstance(record, GroupRecord)  # the catalogue allows nothing else on this topic
        if record is None or value is None:
            self.records.drop("groups", group.number)
        else:
            names = [(group_id, member.trajectory_id) for member in record.members]
            members = [self._make_rows(group, ids).number for ids in names]
            self.records.put_group(group.number, record, value, members)
            if is_evicted(record):
                group.evicted = True
                self._drop_trajectories(group)
        if record is not None and self._keep is not None and not self._keep(record):
            self.forget(group_id)

    def forget(self, group_id: str) -> None:
        """Drop the group's rows, and whatever else comes for it."""
        group = self._groups.pop(group_id, None)
        self._offered = None
        steps = self.store.forget(group_id)
        if group is not None:
            self.records.drop("groups", group.number)
            self._drop_trajectories(group)
            for number in steps:
                self.records.drop("steps", number)

    def _drop_trajectories(self, group: GroupRows) -> None:
        for rows in group.trajectories.values():
            self.records.drop("trajectories", rows.number)
        group.trajectories.clear()

    def _apply_trajectory(self, rows: TrajectoryRows, value: bytes) -> TrajectoryRecord:
        record = decode(value)
        assert isinstance(record, TrajectoryRecord)  # as above
        rows.digest = row_digest(value)
        self.records.put_trajectory(rows.number, record, value)
        return record

    def _apply_step(self, group: GroupRows, ids: tuple[str, ...], value: bytes | None) -> StepRecord | None:
        """The step, where the row is no tombstone."""
        place = (ids[0], ids[1], ids[2])
        if value is None:
            for number in self.store.drop_step(place):
                self.records.drop("steps", number)
        else:
            step = as_step(value)
            number = self.store.put_step(place, value, row_digest(value))
            self.records.put_step(number, step, self._make_rows(group, ids).number)
            return step
        return None

    def groups(self) -> list[GroupRecord]:
        """Whole groups in order of id."""
        if self._offered is not None:
            return list(self._offered)
        records = (self.group(group_id) for group_id in sorted(self._groups))
        whole = [record for record in records if record is not None]
        self._offered = whole if self._tables is None else None  # who lists holds as little as it can
        return list(whole)

    def group(self, group_id: str) -> GroupRecord | None:
        """The group if it is whole."""
        group = self._groups.get(group_id)
        if group is None or group.whole is False:
            return None
        record = self._group_record(group)
        if record is not None and group.whole is None:
            group.whole = all(self._member_whole(record, member, group) for member in record.members if member.digest)
        return record if group.whole else None

    def trajectory(self, group_id: str, trajectory_id: str) -> TrajectoryRecord | None:
        group = self._groups.get(group_id)
        rows = group.trajectories.get(trajectory_id) if group else None
        return self._record(rows) if rows else None

    def steps(self, group_id: str, trajectory_id: str) -> list[StepRecord]:
        """Captured steps in the order of `TrajectoryRecord.calls`."""
        record = self.trajectory(group_id, trajectory_id)
        if record is None:
            return []
        values = self.store.steps(group_id, trajectory_id)
        return [as_step(values[call_id]) for call_id in record.calls if call_id in values]

    def members(self, record: GroupRecord) -> list[tuple[TrajectoryRecord, list[StepRecord]]] | None:
        """Members that are over, ready or not, with their captured steps, of the moment of `record`; None: that row is not
        the group's, or the group is not whole, any more."""
        if self.group(record.group_id) != record:
            return None
        names = [member.trajectory_id for member in record.members if member.status in OVER]
        rows = [(self.trajectory(record.group_id, name), self.steps(record.group_id, name)) for name in names]
        return [(row, steps) for row, steps in rows if row is not None]  # a whole group has all rows that it names

    def trajectories(self, record: GroupRecord) -> list[TrajectoryRecord] | None:
        """All members that `record` names, ready or not; None as for `members`."""
        if self.group(record.group_id) != record:
            return None
        rows = (self.trajectory(record.group_id, member.trajectory_id) for member in record.members)
        return [row for row in rows if row is not None]

    def step(self, group_id: str, trajectory_id: str, call_id: str) -> StepRecord | None:
        """The step row of one call, captured or not."""
        value = self.store.step((group_id, trajectory_id, call_id))
        return None if value is None else as_step(value)

    def group_rows(self) -> Iterator[GroupRecord]:
        """The latest row of every group, whole or not, in order of id."""
        for group_id in sorted(self._groups):
            record = self._group_record(self._groups[group_id])
            if record is not None:
                yield record

    def trajectory_rows(self) -> Iterator[TrajectoryRecord]:
        """The latest row of every trajectory, in order of (group_id, trajectory_id)."""
        for _, group in sorted(self._groups.items()):
            for _, rows in sorted(group.trajectories.items()):
                record = self._record(rows)
                if record is not None:
                    yield record

    def group_row(self, group_id: str) -> GroupRecord | None:
        """The latest row, whole or not."""
        group = self._groups.get(group_id)
        return self._group_record(group) if group else None

    def trajectories_named(self, trajectory_id: str) -> list[TrajectoryRecord]:
        """The latest rows of that id, one for each group that has it, in order of group_id."""
        candidates = (group.trajectories.get(trajectory_id) for group in self._groups.values())
        records = [self._record(rows) for rows in candidates if rows is not None]
        return sorted(filter(None, records), key=lambda record: record.group_id)

    def _group_record(self, group: GroupRows) -> GroupRecord | None:
        record = self.records.record("groups", group.number)
        assert record is None or isinstance(record, GroupRecord)  # nothing else was put
        return record

    def _record(self, rows: TrajectoryRows) -> TrajectoryRecord | None:
        record = self.records.record("trajectories", rows.number)
        assert record is None or isinstance(record, TrajectoryRecord)  # as above
        return record

    def _member_whole(self, record: GroupRecord, member: GroupMember, group: GroupRows) -> bool:
        rows = group.trajectories.get(member.trajectory_id)
        trajectory = self._record(rows) if rows else None
        if rows is None or trajectory is None:
            return False
        if (
            rows.digest != member.digest != record_digest(trajectory)
        ):  # the second for a row that an earlier schema wrote
            return False
        return _steps_match(trajectory, self.store.digests(record.group_id, member.trajectory_id), self.store)


def _tables(store: StepStore) -> "PoolTables":
    from claw_r1.datapool.view.listing.tables import PoolTables  # it knows rows of these kinds

    return PoolTables(store)


def as_step(value: bytes) -> StepRecord:
    """A step row decoded."""
    record = decode(value)
    assert isinstance(record, StepRecord)  # by its key
    return record


def _steps_match(record: TrajectoryRecord, digests: list[Digests], store: StepStore) -> bool:
    """The second try is for rows that an earlier schema wrote: digests are of the current one."""
    if record.digest == rows_digest((digest.call_id, digest.row.hex()) for digest in digests):
        return True
    rows = store.steps(record.group_id, record.trajectory_id)
    return record.digest == rows_digest((call_id, record_digest(as_step(value))) for call_id, value in rows.items())

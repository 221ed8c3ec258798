"""Rows of the pool in memory, by group, and whether a group's rows are of one moment. Pure: bytes in, records out.

Invariant: a group is whole only when every member's row has the digest that the group names, that row names the digests
of all its steps, and, for a group that is ready, each call has tokens with its step's digest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from datapool.digests import record_digest, row_digest, steps_digest
from schemas.codec import decode
from schemas.events import GroupMember, GroupRecord, StepRecord, StepTokens, TrajectoryRecord
from schemas.keys import TOKENS, parts
from schemas.topics import GROUPS, STEPS, TRAJECTORIES

Wanted = Callable[[GroupRecord], bool]


@dataclass(slots=True)
class TrajectoryRows:
    """Bytes as they stand in the log; step and token rows are decoded only when somebody asks."""

    record: TrajectoryRecord | None = None
    digest: str = ""
    steps: dict[str, bytes] = field(default_factory=dict)
    tokens: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class GroupRows:
    record: GroupRecord | None = None
    trajectories: dict[str, TrajectoryRows] = field(default_factory=dict)
    whole: bool | None = None
    """None: not looked at since the last change."""


class PoolRows:
    """The latest row per key, without those of groups that nobody wants any more. Not thread-safe."""

    def __init__(self, wanted: Wanted | None = None) -> None:
        self._wanted = wanted
        self._groups: dict[str, GroupRows] = {}
        self._forgotten: set[str] = set()

    def apply(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Take one row in. topic: `Topic.name`; a None value removes. Raises UndecodableRecord."""
        ids = (key.decode("utf-8", "surrogatepass"),) if topic == GROUPS.name else parts(key)
        if ids[0] in self._forgotten:
            return
        group = self._groups.setdefault(ids[0], GroupRows())
        group.whole = None
        if topic == GROUPS.name:
            self._apply_group(group, ids[0], value)
            return
        trajectory = group.trajectories.setdefault(ids[1], TrajectoryRows())
        if topic == TRAJECTORIES.name:
            _apply_trajectory(trajectory, value)
        elif topic == STEPS.name:
            _apply_step(trajectory, ids[2:], value)

    def _apply_group(self, group: GroupRows, group_id: str, value: bytes | None) -> None:
        record = None if value is None else decode(value)
        assert record is None or isinstance(record, GroupRecord)  # the catalogue allows nothing else on this topic
        group.record = record
        if record is not None and self._wanted is not None and not self._wanted(record):
            self.forget(group_id)

    def forget(self, group_id: str) -> None:
        """Drop the group's rows, and whatever else comes for it."""
        self._forgotten.add(group_id)
        self._groups.pop(group_id, None)

    def groups(self) -> list[GroupRecord]:
        """Whole groups in order of id."""
        found = (self.group(group_id) for group_id in sorted(self._groups))
        return [record for record in found if record is not None]

    def group(self, group_id: str) -> GroupRecord | None:
        """The group if it is whole."""
        group = self._groups.get(group_id)
        if group is None or group.record is None:
            return None
        if group.whole is None:
            group.whole = _whole(group.record, group.trajectories)
        return group.record if group.whole else None

    def trajectory(self, group_id: str, trajectory_id: str) -> TrajectoryRecord | None:
        rows = self._rows(group_id, trajectory_id)
        return rows.record if rows else None

    def steps(self, group_id: str, trajectory_id: str) -> list[StepRecord]:
        """Captured steps in the order of `TrajectoryRecord.calls`."""
        rows = self._rows(group_id, trajectory_id)
        if rows is None or rows.record is None:
            return []
        return [_step(rows.steps[call_id]) for call_id in rows.record.calls if call_id in rows.steps]

    def tokens(self, group_id: str, trajectory_id: str, call_id: str) -> StepTokens | None:
        rows = self._rows(group_id, trajectory_id)
        value = rows.tokens.get(call_id) if rows else None
        return None if value is None else _tokens(value)

    def _rows(self, group_id: str, trajectory_id: str) -> TrajectoryRows | None:
        group = self._groups.get(group_id)
        return group.trajectories.get(trajectory_id) if group else None


def _apply_trajectory(rows: TrajectoryRows, value: bytes | None) -> None:
    record = None if value is None else decode(value)
    assert record is None or isinstance(record, TrajectoryRecord)  # as above
    rows.record = record
    rows.digest = "" if value is None else row_digest(value)


def _apply_step(rows: TrajectoryRows, ids: tuple[str, ...], value: bytes | None) -> None:
    table = rows.tokens if ids[1:] == (TOKENS,) else rows.steps
    if value is None:
        table.pop(ids[0], None)
    else:
        table[ids[0]] = value


def _step(value: bytes) -> StepRecord:
    record = decode(value)
    assert isinstance(record, StepRecord)  # by its key
    return record


def _tokens(value: bytes) -> StepTokens:
    record = decode(value)
    assert isinstance(record, StepTokens)  # by its key
    return record


def _whole(group: GroupRecord, trajectories: dict[str, TrajectoryRows]) -> bool:
    return all(
        _member_whole(member, trajectories.get(member.trajectory_id), tokens_needed=group.ready and member.ready)
        for member in group.members
        if member.digest
    )


def _member_whole(member: GroupMember, rows: TrajectoryRows | None, *, tokens_needed: bool) -> bool:
    if rows is None or rows.record is None:
        return False
    if member.digest not in (rows.digest, record_digest(rows.record)):
        return False
    if not _steps_match(rows):
        return False
    return not tokens_needed or all(_tokens_match(rows, call_id) for call_id in rows.record.calls)


def _steps_match(rows: TrajectoryRows) -> bool:
    """The second try is for rows that an earlier schema wrote: digests are of the current one."""
    assert rows.record is not None  # asked by the caller
    wanted = rows.record.digest
    if wanted == steps_digest((call_id, row_digest(value)) for call_id, value in rows.steps.items()):
        return True
    return wanted == steps_digest((call_id, record_digest(_step(value))) for call_id, value in rows.steps.items())


def _tokens_match(rows: TrajectoryRows, call_id: str) -> bool:
    step, tokens = rows.steps.get(call_id), rows.tokens.get(call_id)
    return step is not None and tokens is not None and _step(step).digest == _tokens(tokens).digest

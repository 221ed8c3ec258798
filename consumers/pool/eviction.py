"""Groups and trajectories erased from the pool by an operator, as GroupEvicted and TrajectoryEvicted on claw.calls.

An eviction cannot be undone. So an id that is unknown, or that several groups have, evicts nothing at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from claw_r1.consumers.pool.acts import EvictionFact, act_envelope
from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.datapool.fold.readiness import is_evicted
from claw_r1.schemas.events import GroupEvicted, GroupRecord, TrajectoryEvicted, TrajectoryRecord

EvictableRow = GroupRecord | TrajectoryRecord


class EvictionAct(NamedTuple):
    """The events of one eviction, the groups that leave the pool as a whole and the places of all trajectories that do, and
    the ids that are unknown: with one of them, no event."""

    events: Sequence[EvictionFact]
    groups: Sequence[str]
    trajectories: Sequence[tuple[str, str]]
    unknown: Sequence[str]


def evictions(
    rows_by_id: Mapping[str, Sequence[EvictableRow]], *, why: str, who: str, producer: str, act_id: str
) -> EvictionAct:
    """Evicts what is not evicted yet, each once, in order: an eviction that broke off is simply repeated. rows_by_id: of
    `rows_of`; a group goes with all its trajectories."""
    unknown = [name for name, rows in rows_by_id.items() if not rows]
    rows = [] if unknown else [row for each in rows_by_id.values() for row in each]
    groups = sorted({row.group_id for row in rows if isinstance(row, GroupRecord) and not is_evicted(row)})
    present = (row for row in rows if isinstance(row, TrajectoryRecord) and row.status != "evicted")
    places = sorted({(row.group_id, row.trajectory_id) for row in present})
    words = {"reason": why, "requested_by": who}
    whole = [GroupEvicted(envelope=act_envelope(producer, act_id), group_id=name, **words) for name in groups]
    single = [
        TrajectoryEvicted(envelope=act_envelope(producer, act_id), group_id=group, trajectory_id=name, **words)
        for group, name in places
        if group not in groups
    ]
    return EvictionAct([*whole, *single], groups, places, unknown)


def rows_of(rows: Iterable[EvictableRow], ids: Sequence[str], group: str | None) -> dict[str, list[EvictableRow]]:
    """By id the group of that id with its trajectories, or the trajectory of that id, evicted or not. rows: of groups
    and of trajectories.

    group: only this group and its trajectories count.

    Raises PoolRefusal for a trajectory id that several groups have.
    """
    rows_by_id: dict[str, list[EvictableRow]] = {name: [] for name in ids}
    for row in rows:
        if group not in (None, row.group_id):
            continue
        for name in {row.group_id, getattr(row, "trajectory_id", row.group_id)} & rows_by_id.keys():
            rows_by_id[name].append(row)
    for name, each in rows_by_id.items():
        if len(groups := {row.group_id for row in each}) > 1:
            raise PoolRefusal(f"{name} is in {len(groups)} groups, one of them {min(groups)}: say which, --group ID")
    return rows_by_id

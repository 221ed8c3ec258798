"""Trajectories erased from the pool by an operator, as TrajectoryEvicted on claw.calls.

An eviction cannot be undone. So an id that is unknown, or that several groups have, evicts nothing at all.
"""

from collections.abc import Iterable, Mapping, Sequence

from claw_r1.consumers.pool.acts import act_envelope
from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.schemas.events import TrajectoryEvicted, TrajectoryRecord


def evictions(
    rows_by_id: Mapping[str, Sequence[TrajectoryRecord]], *, why: str, who: str, producer: str, act_id: str
) -> tuple[list[TrajectoryEvicted], list[str]]:
    """The events of one eviction, and the ids that are unknown: with one of them, no event. rows_by_id: of `rows_of`."""
    unknown = [name for name, rows in rows_by_id.items() if not rows]
    rows = [] if unknown else not_evicted(rows_by_id)
    return [_event(row, why, who, producer, act_id) for row in rows], unknown


def rows_of(
    rows: Iterable[TrajectoryRecord], ids: Sequence[str], group: str | None
) -> dict[str, list[TrajectoryRecord]]:
    """By id the trajectories of the group of that id, or the trajectory of that id, evicted or not.

    group: only trajectories of this group count.

    Raises PoolRefusal for a trajectory id that several groups have.
    """
    rows_by_id: dict[str, list[TrajectoryRecord]] = {name: [] for name in ids}
    for row in rows:
        if group not in (None, row.group_id):
            continue
        for name in {row.group_id, row.trajectory_id} & rows_by_id.keys():
            rows_by_id[name].append(row)
    for name, each in rows_by_id.items():
        if len(groups := {row.group_id for row in each}) > 1:
            raise PoolRefusal(f"{name} is in {len(groups)} groups, one of them {min(groups)}: say which, --group ID")
    return rows_by_id


def not_evicted(rows_by_id: Mapping[str, Sequence[TrajectoryRecord]]) -> list[TrajectoryRecord]:
    """The trajectories that are not evicted yet, each once, in order: an eviction that broke off is simply repeated."""
    rows = {(row.group_id, row.trajectory_id): row for each in rows_by_id.values() for row in each}
    return [row for _, row in sorted(rows.items()) if row.status != "evicted"]


def _event(row: TrajectoryRecord, why: str, who: str, producer: str, act_id: str) -> TrajectoryEvicted:
    return TrajectoryEvicted(
        envelope=act_envelope(producer, act_id),
        group_id=row.group_id,
        trajectory_id=row.trajectory_id,
        reason=why,
        requested_by=who,
    )

"""Every record that the pool must hold, and no other."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from claw_r1.consumers.verify.oracle.conflicts import newest, of_kind
from claw_r1.consumers.verify.oracle.groups import group_record, stub
from claw_r1.consumers.verify.oracle.soundness import GroupFact, PlacedFact, sound
from claw_r1.consumers.verify.oracle.trajectories import PoolBytes, trajectory_rows
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import Event, FactPosition, GroupEvicted
from claw_r1.schemas.keys import group_key, trajectory_key
from claw_r1.schemas.topics import GROUPS, TRAJECTORIES


def pool_of(facts: Iterable[tuple[Event, FactPosition]]) -> PoolBytes:
    """The rows of all groups."""
    by_group: dict[str, list[PlacedFact]] = defaultdict(list)
    for fact, position in facts:
        if sound(fact):
            by_group[fact.group_id].append((fact, position))
    pool: PoolBytes = {}
    for group_id, placed in by_group.items():
        pool |= group_rows(group_id, placed)
    return pool


def group_rows(group_id: str, placed: Sequence[PlacedFact]) -> PoolBytes:
    """Returns the rows of one group: steps, trajectories and the group itself; for an evicted one only its stub."""
    facts = [fact for fact, _ in placed]
    eviction = newest(of_kind(facts, GroupEvicted))
    if eviction is not None:
        return {(GROUPS.name, group_key(group_id)): encode(stub(eviction, facts))}
    by_trajectory: dict[str, list[PlacedFact]] = defaultdict(list)
    for fact, at in placed:
        if not isinstance(fact, GroupFact):
            by_trajectory[fact.trajectory_id].append((fact, at))
    trajectories = {name: trajectory_rows(group_id, name, own) for name, own in by_trajectory.items()}
    pool: PoolBytes = {}
    for name, rows in trajectories.items():
        pool |= rows.rows
        pool[TRAJECTORIES.name, trajectory_key(group_id, name)] = encode(rows.record)
    pool[GROUPS.name, group_key(group_id)] = encode(group_record(group_id, facts, trajectories))
    return pool

"""A ready group with its members, as a spec sees them: what selection and plans read of the pool."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from datapool.batch.advantages import Return
from datapool.batch.returns import trajectory_return
from datapool.batch.spec import BatchSpec
from schemas.events import GroupRecord, StepRecord, TrajectoryRecord

Members = Sequence[tuple[TrajectoryRecord, Sequence[StepRecord]]]
"""Rows of one moment: a trajectory with its captured steps in order, each once, in order of trajectory_id."""


class Pool(Protocol):
    """What selection reads; `datapool.view.view.PoolView` is one."""

    def groups(self) -> Sequence[GroupRecord]:
        """Every group whose rows fit together, ready or not."""

    def members(self, record: GroupRecord) -> Members | None:
        """The ready members as this row of their group names them; None where the pool has moved on since."""


@dataclass(frozen=True, slots=True)
class PooledTrajectory:
    """A ready member with its captured steps, in order."""

    record: TrajectoryRecord
    steps: tuple[StepRecord, ...]
    earned: Return | None
    """Under the reward weights of the spec; None: no reward that counts was given."""
    tags: frozenset[str] = frozenset()
    """Its own and its group's; each step carries them."""


@dataclass(frozen=True, slots=True)
class PooledGroup:
    """A group with its ready members in order of trajectory_id."""

    record: GroupRecord
    members: tuple[PooledTrajectory, ...]

    @property
    def returns(self) -> list[float]:
        """Of the members that have one."""
        return [member.earned.total for member in self.members if member.earned is not None]


def with_members(pool: Pool, record: GroupRecord, spec: BatchSpec) -> PooledGroup | None:
    """Rows of the ready members, or None where the pool moved on since `record` was read."""
    members = pool.members(record)
    if members is None:
        return None
    return PooledGroup(record, tuple(member_of(record, row, steps, spec) for row, steps in members))


def member_of(
    group: GroupRecord, row: TrajectoryRecord, steps: Sequence[StepRecord], spec: BatchSpec
) -> PooledTrajectory:
    """A member as the spec sees it. steps: captured, in order."""
    tags = frozenset((*group.tags, *row.tags))
    return PooledTrajectory(row, tuple(steps), trajectory_return(row, steps, spec), tags)


def all_equal(returns: Sequence[float]) -> bool:
    """Whether there are several returns and all are equal: a baseline over them leaves nothing to learn."""
    return len(returns) > 1 and max(returns) == min(returns)

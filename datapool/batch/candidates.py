"""A ready group with its members, as a spec sees them: what selection and plans read of the pool."""

import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from datapool.batch.advantages import Return
from datapool.batch.spec import BatchSpec
from datapool.batch.states import states_of
from datapool.fold.project import winners
from schemas.events import GroupRecord, RewardSlot, StepRecord, TrajectoryRecord

OVER: Set[str] = frozenset({"completed", "failed", "abandoned"})
"""`TrajectoryRecord.status` of one that nothing more is expected of."""
IMITABLE = frozenset({"no_trainable_call", "abandoned", "failed_without_outcome"})
"""Reasons of a trajectory that is not ready and can be imitated all the same (`policy: any`)."""
Members = Sequence[tuple[TrajectoryRecord, Sequence[StepRecord]]]
"""Rows of one moment: a trajectory with its captured steps in order, each once, in order of trajectory_id."""


class Pool(Protocol):
    """What selection reads; `datapool.view.view.PoolView` is one."""

    def groups(self) -> Sequence[GroupRecord]:
        """Every group whose rows fit together, ready or not."""

    def members(self, record: GroupRecord) -> Members | None:
        """The members that are over, ready or not, as this row of their group names them; None where the pool has moved on
        since."""


@dataclass(frozen=True, slots=True)
class PooledTrajectory:
    """A member with its captured steps, in order."""

    record: TrajectoryRecord
    steps: tuple[StepRecord, ...]
    earned: Return | None
    """Under the reward weights of the spec; None: no reward that counts was given."""
    tags: frozenset[str] = frozenset()
    """Its own and its group's; each step carries them."""

    @property
    def truncated(self) -> bool:
        """Whether its last completed reply was cut off by its length."""
        reasons = [step.finish_reason for step in self.steps if step.status == "completed"]
        return bool(reasons) and reasons[-1] == "length"


@dataclass(frozen=True, slots=True)
class PooledGroup:
    """A group with its members in order of trajectory_id."""

    record: GroupRecord
    members: tuple[PooledTrajectory, ...]
    """Those that a baseline counts."""
    dropped: tuple[str, ...] = ()
    """trajectory_ids of the ready members that the spec drops (`truncated: drop`): as if they had never been played."""

    @property
    def returns(self) -> list[float]:
        """Of the members that have one."""
        return [member.earned.total for member in self.members if member.earned is not None]


def with_members(pool: Pool, record: GroupRecord, spec: BatchSpec) -> PooledGroup | None:
    """Rows of the members that may count, or None where the pool moved on since `record` was read."""
    members = pool.members(record)
    if members is None:
        return None
    counted = [member_of(record, row, steps, spec) for row, steps in members if counts(row, spec)]
    dropped = {one.record.trajectory_id for one in counted if one.truncated} if spec.truncated == "drop" else set()
    kept = tuple(member for member in counted if member.record.trajectory_id not in dropped)
    return PooledGroup(record, kept, tuple(sorted(dropped)))


def counts(row: TrajectoryRecord, spec: BatchSpec) -> bool:
    """Whether a trajectory that is over is a member for this spec."""
    if row.ready:
        return True
    if spec.policy == "any":
        return IMITABLE.issuperset(row.reasons)
    return spec.unfinished != "drop" and row.reasons == ("abandoned",) and row.return_total is not None


def member_of(
    group: GroupRecord, row: TrajectoryRecord, steps: Sequence[StepRecord], spec: BatchSpec
) -> PooledTrajectory:
    """A member as the spec sees it. steps: captured, in order."""
    tags = frozenset((*group.tags, *row.tags))
    return PooledTrajectory(row, tuple(steps), _return(row, steps, spec), tags)


def _return(record: TrajectoryRecord, steps: Sequence[StepRecord], spec: BatchSpec) -> Return | None:
    """Total, rewards per step and outcome; None where no reward that counts was given. steps: captured, in order."""
    if not spec.reward_weights:
        outcome: float | None = record.outcome
        step_rewards = [step.reward_total for step in steps]
        total = record.return_total
    else:
        outcome = _weighted((slot for slot in record.rewards if slot.step_index is None), spec)
        step_rewards = [_weighted(winners(step.rewards, ()), spec) for step in steps]
        rewards = [reward for reward in (outcome, *step_rewards) if reward is not None]
        total = math.fsum(rewards) if rewards else None
    if total is None:
        return None
    states = states_of(steps) if spec.estimator.by_state else ()
    return Return(float(total), tuple(reward or 0.0 for reward in step_rewards), outcome or 0.0, states)


def _weighted(slots: Iterable[RewardSlot], spec: BatchSpec) -> float | None:
    """Weighted sum of the slots whose weight is not 0; None where there is no such slot."""
    weights = [(spec.weight(slot.source, slot.name), slot.value) for slot in slots]
    terms = [weight * value for weight, value in weights if weight != 0 and value is not None]
    return math.fsum(terms) if terms else None


def all_equal(returns: Sequence[float]) -> bool:
    """Whether there are several returns and all are equal: a baseline over them leaves nothing to learn."""
    return len(returns) > 1 and max(returns) == min(returns)

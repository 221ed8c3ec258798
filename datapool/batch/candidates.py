"""A ready group with its members, as a spec sees them: what selection and plans read of the pool."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Protocol

from claw_r1.datapool.batch.advantages import Return, are_equal
from claw_r1.datapool.batch.anchor_states import states_of
from claw_r1.datapool.batch.masks import is_trained
from claw_r1.datapool.batch.rewards import (
    SAID_NOTHING,
    Lacking,
    Slots,
    is_filled,
    lacking,
    sums_as_pool,
    supplied,
    worth,
)
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.merge import winners
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord

OVER: Set[str] = frozenset({"completed", "failed", "abandoned"})
"""`TrajectoryRecord.status` of one that nothing more is expected of."""
SCORING_FAILED, REWARD_REQUIRED = "scoring_failed", "reward_required"
IMITABLE = frozenset({"no_trainable_call", "abandoned", "failed_without_outcome"})
"""Reasons of a trajectory that is not ready and can be imitated all the same (`policy: any`)."""
Members = Sequence[tuple[TrajectoryRecord, Sequence[StepRecord]]]
"""Rows of one moment: a trajectory with its captured steps in order, each once, in order of trajectory_id."""


class Pool(Protocol):
    """The part of the pool that selection reads; `claw_r1.datapool.view.view.PoolView` is one."""

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
    lacks: Lacking = field(default_factory=dict)
    """Rewards that the spec requires and nothing has taken the place of."""

    @property
    def truncated(self) -> bool:
        """The last completed reply was cut off by its length."""
        reasons = [step.finish_reason for step in self.steps if step.status == "completed"]
        return bool(reasons) and reasons[-1] == "length"

    def dropped_by(self, spec: BatchSpec, *, closed: bool) -> str | None:
        """Returns the reason to leave the member out of its group altogether; None: it is a member. closed: its group,
        so that nothing is waited for."""
        if self.truncated and spec.truncated == "drop":
            return "truncated"
        silent, over = (None, SAID_NOTHING), closed or spec.reward_missing == "reject"
        failed = (f"{SCORING_FAILED}: {slot} {reason}" for slot, reason in self.lacks.items() if reason not in silent)
        missing = (f"{REWARD_REQUIRED}: {slot}" for slot, reason in self.lacks.items() if over or reason is not None)
        return next(failed, None) or next(missing, None)


@dataclass(frozen=True, slots=True)
class PooledGroup:
    """A group with its members in order of trajectory_id."""

    record: GroupRecord
    members: tuple[PooledTrajectory, ...]
    """The members that a baseline counts."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """trajectory_ids of the ready members that the spec drops, as if they had never been played -> `dropped_by`."""

    @property
    def returns(self) -> list[float]:
        """The returns of the members that have one."""
        return [member.earned.total for member in self.members if member.earned is not None]


def with_members(pool: Pool, record: GroupRecord, spec: BatchSpec) -> PooledGroup | None:
    """Rows of the members that may count, or None where the pool moved on since `record` was read."""
    members = pool.members(record)
    if members is None:
        return None
    counted = [member_of(record, row, steps, spec) for row, steps in members if counts(row, steps, spec)]
    reasons = {one.record.trajectory_id: one.dropped_by(spec, closed=record.closed) for one in counted}
    dropped = {name: reason for name, reason in reasons.items() if reason is not None}
    kept = tuple(member for member in counted if member.record.trajectory_id not in dropped)
    return PooledGroup(record, kept, dropped)


def counts(row: TrajectoryRecord, steps: Sequence[StepRecord], spec: BatchSpec) -> bool:
    """Returns whether a trajectory that is over is a member for this spec. steps: captured."""
    if row.ready:
        return True
    if spec.policy == "any":
        return IMITABLE.issuperset(row.reasons)
    return spec.unfinished != "drop" and row.reasons == ("abandoned",) and _is_judged(row, steps, spec)


def _is_judged(row: TrajectoryRecord, steps: Sequence[StepRecord], spec: BatchSpec) -> bool:
    """Returns whether a reward that the spec counts was given; a substitute for a missing one does not count."""
    own, of_steps = _slots(row, steps)
    return any(is_filled(slot, spec) for slots in (own, *of_steps) for slot in slots)


def _slots(row: TrajectoryRecord, steps: Sequence[StepRecord]) -> tuple[Slots, list[Slots]]:
    """Returns the slots of the trajectory itself, and those of each of its calls."""
    own = tuple(slot for slot in row.rewards if slot.step_index is None)
    return own, [winners(step.rewards, ()) if len(step.rewards) > 1 else step.rewards for step in steps]


def member_of(
    group: GroupRecord, row: TrajectoryRecord, steps: Sequence[StepRecord], spec: BatchSpec
) -> PooledTrajectory:
    """A member as the spec sees it. steps: captured, in order."""
    tags = frozenset((*group.tags, *row.tags))
    member = PooledTrajectory(row, tuple(steps), None, tags)
    own, of_steps = _slots(row, steps)
    if spec.rewards_required:
        judged = [n for n, step in enumerate(steps) if is_trained(step, member, spec)] or list(range(len(steps)))
        calls = [of_steps[n] for n in judged]
        own, calls, lacks = supplied(own, calls, spec, lacking(own, calls, spec), closed=group.closed)
        for n, slots in zip(judged, calls, strict=True):
            of_steps[n] = slots
        member = replace(member, lacks=lacks)
    return replace(member, earned=_return(row, steps, own, of_steps, spec))


def _return(
    record: TrajectoryRecord, steps: Sequence[StepRecord], own: Slots, of_steps: Sequence[Slots], spec: BatchSpec
) -> Return | None:
    """Total, rewards per step and outcome; None where no reward that counts was given. steps: captured, in order, with the
    slots of each."""
    if sums_as_pool((own, *of_steps), spec):
        outcome = record.outcome
        step_rewards = [step.reward_total for step in steps]
        total = record.return_total
    else:
        outcome, *step_rewards = (worth(slots, spec) for slots in (own, *of_steps))
        rewards = [reward for reward in (outcome, *step_rewards) if reward is not None]
        total = math.fsum(rewards) if rewards else None
    if total is None:
        return None
    states = states_of(steps) if spec.estimator.by_state else ()
    return Return(float(total), tuple(reward or 0.0 for reward in step_rewards), outcome or 0.0, states)


def all_equal(returns: Sequence[float]) -> bool:
    """Returns whether there are several returns and all are equal: a baseline over them leaves nothing to learn."""
    return len(returns) > 1 and are_equal(returns)

"""Which members of a chosen group are trained, and how much of a batch they take. Pure."""

from collections.abc import Iterator

from datapool.batch.candidates import PooledGroup, PooledTrajectory
from datapool.batch.masks import Mask, is_trained, mask_of
from datapool.batch.spec import BatchSpec
from datapool.fold.bounds import name_bytes

PLANNED_MEMBER_BYTES, PLANNED_STEP_BYTES = 64, 128
"""Of a plan beside ids and topics: numbers, a digest, lengths."""


def trained_members(group: PooledGroup, spec: BatchSpec) -> list[PooledTrajectory]:
    """Those that `baseline_only` does not name, in order of trajectory_id."""
    untrained = baseline_only(group, spec)
    return [member for member in group.members if member.record.trajectory_id not in untrained]


def baseline_only(group: PooledGroup, spec: BatchSpec) -> dict[str, str]:
    """trajectory_id -> why it counts in baselines and is not trained: `return_low`, `nothing_trainable` (all its calls are
    masked) or `not_among_best`."""
    reasons = {member.record.trajectory_id: "return_low" for member in group.members}
    above = above_return_min(group, spec)
    reasons |= {member.record.trajectory_id: "nothing_trainable" for member in above}
    eligible = [member for member in above if any(is_trained(step, member, spec) for step in member.steps)]
    reasons |= {member.record.trajectory_id: "not_among_best" for member in eligible}
    # The sort is stable, so of equal returns the first id stays.
    for member in sorted(eligible, key=lambda member: -(member.earned.total if member.earned else 0.0))[: spec.best_of]:
        del reasons[member.record.trajectory_id]
    return reasons


def above_return_min(group: PooledGroup, spec: BatchSpec) -> list[PooledTrajectory]:
    """Members that `return_min` lets through."""
    low = spec.return_min
    return [m for m in group.members if low is None or (m.earned is not None and m.earned.total >= low)]


def masks(group: PooledGroup, spec: BatchSpec) -> Iterator[Mask]:
    """Why responses of the members that `return_min` lets through are masked, one per masked response."""
    for member in above_return_min(group, spec):
        for step in member.steps:
            if mask := mask_of(step, member, spec):
                yield mask


def response_tokens(group: PooledGroup, spec: BatchSpec) -> int:
    """Sampled tokens of the group that would be trained."""
    steps = ((step, member) for member in trained_members(group, spec) for step in member.steps)
    return sum(step.response_length for step, member in steps if is_trained(step, member, spec))


def plan_bytes(group: PooledGroup, spec: BatchSpec) -> int:
    """How many bytes the group takes of a plan, at most: members by id, and the calls of those that are trained."""
    members = sum(name_bytes(member.record.trajectory_id) for member in group.members)
    steps = sum(
        PLANNED_STEP_BYTES + name_bytes(step.call_id) + name_bytes(step.position.topic)
        for member in trained_members(group, spec)
        for step in member.steps
        if step.position is not None
    )
    return len(group.members) * (PLANNED_MEMBER_BYTES + name_bytes(group.record.group_id)) + members + steps

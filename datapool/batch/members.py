"""The choice of the members of a group that are trained, and their size in a batch. Pure."""

from collections.abc import Iterator

from claw_r1.datapool.batch.candidates import PooledGroup, PooledTrajectory
from claw_r1.datapool.batch.figures import figures_bytes, response_tokens_of
from claw_r1.datapool.batch.masks import Mask, is_trained, mask_of
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.bounds import name_bytes

PLANNED_MEMBER_BYTES, PLANNED_STEP_BYTES = 64, 160
"""The bytes that a plan takes for a member and for a step, beside ids and topics: numbers, a digest, lengths."""


def trained_members(group: PooledGroup, spec: BatchSpec) -> list[PooledTrajectory]:
    """Returns the members that `baseline_only` does not name, in order of trajectory_id."""
    untrained = baseline_only(group, spec)
    return [member for member in group.members if member.record.trajectory_id not in untrained]


def baseline_only(group: PooledGroup, spec: BatchSpec) -> dict[str, str]:
    """trajectory_id -> why it counts in baselines and is not trained: `return_low`, `unfinished`, `truncated`,
    `nothing_trainable` (all its calls are masked) or `not_among_best`."""
    reasons = {member.record.trajectory_id: _unfit(member, spec) for member in group.members}
    candidates = may_be_trained(group, spec)
    reasons |= {member.record.trajectory_id: "nothing_trainable" for member in candidates}
    eligible = [member for member in candidates if any(is_trained(step, member, spec) for step in member.steps)]
    reasons |= {member.record.trajectory_id: "not_among_best" for member in eligible}
    # The sort is stable, so of equal returns the first id stays.
    for member in sorted(eligible, key=lambda member: -(member.earned.total if member.earned else 0.0))[: spec.best_of]:
        del reasons[member.record.trajectory_id]
    return {trajectory_id: reason for trajectory_id, reason in reasons.items() if reason is not None}


def may_be_trained(group: PooledGroup, spec: BatchSpec) -> list[PooledTrajectory]:
    """Members that `return_min`, `unfinished` and `truncated` let through."""
    return [member for member in group.members if _unfit(member, spec) is None]


def _unfit(member: PooledTrajectory, spec: BatchSpec) -> str | None:
    """Returns why a member as a whole is not trained, whatever its calls are."""
    low = spec.return_min
    if low is not None and (member.earned is None or member.earned.total < low):
        return "return_low"
    if spec.unfinished == "mask" and member.record.status == "abandoned":
        return "unfinished"
    return "truncated" if spec.truncated == "mask" and member.truncated else None


def masks(group: PooledGroup, spec: BatchSpec) -> Iterator[Mask]:
    """Returns why responses of the members that may be trained are masked, one reason per masked response."""
    for member in may_be_trained(group, spec):
        for step in member.steps:
            if mask := mask_of(step, member, spec):
                yield mask


def response_tokens(group: PooledGroup, spec: BatchSpec) -> int:
    """Sampled tokens of the group that would be trained; of a response without ids as many as its server counted."""
    steps = ((step, member) for member in trained_members(group, spec) for step in member.steps)
    return sum(response_tokens_of(step) for step, member in steps if is_trained(step, member, spec))


def newest_version(group: PooledGroup, spec: BatchSpec) -> int | None:
    """Version of the youngest token that would be trained; None where none is known."""
    steps = ((step, member) for member in trained_members(group, spec) for step in member.steps)
    versions = (step.max_version for step, member in steps if is_trained(step, member, spec))
    return max((version for version in versions if version is not None), default=None)


def plan_bytes(group: PooledGroup, spec: BatchSpec) -> int:
    """Returns the most bytes that the group takes of a plan: members by id, and the calls of those that are trained."""
    members = sum(name_bytes(member.record.trajectory_id) + figures_bytes(member) for member in group.members)
    steps = sum(
        PLANNED_STEP_BYTES + name_bytes(step.call_id) + name_bytes(step.position.topic)
        for member in trained_members(group, spec)
        for step in member.steps
        if step.position is not None
    )
    return len(group.members) * (PLANNED_MEMBER_BYTES + name_bytes(group.record.group_id)) + members + steps

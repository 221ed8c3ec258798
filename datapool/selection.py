"""Whether a run may train a group now, and if not, why. Pure.

Invariant: the spec alone decides what a batch may contain; nothing about a group is asked that a person cannot read in
its reason. `wait` may change, `never` will not for this run, `foreign` concerns another run or another spec.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from datapool.advantages import Judged
from datapool.batch_spec import BatchSpec
from datapool.digests import record_digest
from datapool.returns import judged
from schemas.events import GroupRecord, StepRecord, TrajectoryRecord


class Pool(Protocol):
    """What selection reads; `datapool.view.PoolView` is one."""

    def groups(self) -> Sequence[GroupRecord]:
        """Every group whose rows fit together, ready or not."""

    def trajectory(self, group_id: str, trajectory_id: str) -> TrajectoryRecord | None:
        """The latest row."""

    def steps(self, group_id: str, trajectory_id: str) -> Sequence[StepRecord]:
        """Captured steps in order."""


@dataclass(frozen=True, slots=True)
class PooledTrajectory:
    """A ready member with its captured steps, in order."""

    record: TrajectoryRecord
    steps: tuple[StepRecord, ...]
    judged: Judged | None
    """What it earned under the spec; None: nobody said."""


@dataclass(frozen=True, slots=True)
class PooledGroup:
    """A group with its ready members in order of trajectory_id."""

    record: GroupRecord
    members: tuple[PooledTrajectory, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a group is not chosen. `wait`: may still come; `never`: skip it for good; `foreign`: not for this run."""

    kind: Literal["wait", "never", "foreign"]
    reason: str


def judge(pool: Pool, record: GroupRecord, spec: BatchSpec, version: int, run_id: str) -> PooledGroup | Refusal:
    """The group with its members if this run may train it now, else why not."""
    refusal = _judge_record(record, spec, run_id)
    if refusal is not None:
        return refusal
    group = with_members(pool, record, spec)
    if group is None:
        return Refusal("wait", "rows_changing")
    return _judge_members(group, spec, version, run_id) or group


def _judge_record(record: GroupRecord, spec: BatchSpec, run_id: str) -> Refusal | None:
    if record.run_id not in (None, run_id):
        return Refusal("foreign", "other_run")
    if record.channel != spec.channel:
        return Refusal("foreign", f"channel_{record.channel or 'unknown'}")
    if not record.ready:
        return Refusal("wait", "not_ready: " + ", ".join(record.reasons))
    if missing := sorted(set(spec.tags) - set(record.tags)):
        return Refusal("foreign", "tags_missing: " + ", ".join(missing))
    return None


def with_members(pool: Pool, record: GroupRecord, spec: BatchSpec) -> PooledGroup | None:
    """Rows of the ready members, or None where the pool moved on since `record` was read."""
    members: list[PooledTrajectory] = []
    for member in record.members:
        if not member.ready:
            continue
        row = pool.trajectory(record.group_id, member.trajectory_id)
        steps = tuple(pool.steps(record.group_id, member.trajectory_id))
        if row is None or record_digest(row) != member.digest or len(steps) != len(row.calls):
            return None
        members.append(PooledTrajectory(row, steps, judged(row, steps, spec)))
    return PooledGroup(record, tuple(members))


def _judge_members(group: PooledGroup, spec: BatchSpec, version: int, run_id: str) -> Refusal | None:
    return (
        _judge_policy(group, run_id)
        or _judge_staleness(group, spec, version)  # before the size: a group that never fills gets too old
        or _judge_size(group, spec)
        or _judge_returns(group, spec)
        or _judge_tokens(group, spec)
    )


def _judge_policy(group: PooledGroup, run_id: str) -> Refusal | None:
    runs = {member.record.policy_run_id for member in group.members}
    if runs <= {run_id}:
        return None
    # A group that was opened for this run counts against its capacity, so the run must give it back.
    ours = group.record.run_id == run_id or run_id in runs
    others = ", ".join(sorted(str(run) for run in runs - {run_id}))
    return Refusal("never" if ours else "foreign", f"policy_of_other_run: {others}")


def _judge_size(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    ready, record = len(group.members), group.record
    enough = ready >= spec.members_min
    if record.closed:
        return None if enough else Refusal("never", f"closed_with_{ready}_ready")
    wanted = record.expected_size or spec.group_size
    if ready < wanted:
        return Refusal("wait", f"members_{ready}_of_{wanted}")
    return None if enough else Refusal("never", "declared_with_one_member")


def _judge_staleness(group: PooledGroup, spec: BatchSpec, version: int) -> Refusal | None:
    oldest = min((m.record.min_version for m in group.members if m.record.min_version is not None), default=version)
    stale = version - oldest
    if stale < 0:
        # A version that this run has not made yet: another history of the same run id (a restored log, for example).
        return Refusal("never", f"sampled_by_unknown_version_{oldest}")
    return Refusal("never", "too_stale") if stale > spec.staleness_max else None


def _judge_returns(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    known = [member.judged.total for member in group.members if member.judged is not None]
    if len(known) < len(group.members):
        if group.record.closed:  # the time for its rewards is over
            return Refusal("never", "reward_missing")
        return Refusal("wait", f"reward_missing_for_{len(group.members) - len(known)}")
    mean = sum(known) / len(known)
    if spec.reward_mean_min is not None and mean < spec.reward_mean_min:
        return Refusal("never", "reward_mean_low")
    if spec.reward_mean_max is not None and mean > spec.reward_mean_max:
        return Refusal("never", "reward_mean_high")
    if spec.zero_variance == "drop" and len(known) > 1 and max(known) == min(known):
        return Refusal("never", "zero_variance")
    return None


def _judge_tokens(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    tokens = response_tokens(group, spec)
    if tokens == 0:
        return Refusal("never", "nothing_trainable")
    if spec.response_tokens_max is not None and tokens > spec.response_tokens_max:
        return Refusal("never", "larger_than_response_tokens_max")
    return None


def response_tokens(group: PooledGroup, spec: BatchSpec) -> int:
    """Sampled tokens of the group that would be trained."""
    steps = (step for member in trained_members(group, spec) for step in member.steps)
    return sum(step.response_length for step in steps if is_trained(step, spec))


def trained_members(group: PooledGroup, spec: BatchSpec) -> list[PooledTrajectory]:
    """Those that `return_min` and `best_of` leave, in order of trajectory_id; the others count in baselines only."""
    good = [
        member
        for member in group.members
        if spec.return_min is None or (member.judged is not None and member.judged.total >= spec.return_min)
    ]
    if spec.best_of is None or len(good) <= spec.best_of:
        return good
    # The sort is stable, so of equal returns the first id stays.
    best = sorted(good, key=lambda member: -(member.judged.total if member.judged else 0.0))[: spec.best_of]
    return [member for member in good if member in best]


def is_trained(step: StepRecord, spec: BatchSpec) -> bool:
    """Whether the response of a step is trained; otherwise it is context only."""
    if not step.trainable or step.position is None:
        return False
    quality = step.curation.quality if step.curation is not None else None
    return spec.quality_min is None or quality is None or quality >= spec.quality_min

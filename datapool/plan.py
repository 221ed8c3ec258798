"""Which groups make up a batch, and the plan that freezes them.

Invariant: both functions are functions of the pool's rows, the spec and the run's own history. No clock is read; equal
inputs give equal plans. Every group that is not chosen has a reason that a person can read, of one of two kinds:
`left_out` may change (more members, a reward) or concerns another run; `skipped` never will for this run, so the run
says so once in a BatchSkipped and the group's admission capacity returns.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from datapool.batch_spec import BatchSpec
from datapool.digests import record_digest
from schemas.events import (
    BatchAssembled,
    Envelope,
    GroupRecord,
    PlannedStep,
    PlannedTrajectory,
    StepRecord,
    TrajectoryRecord,
)

Advantages = Callable[[Sequence[float]], Sequence[float]]
"""Returns of the trajectories of one group -> their advantages, in the same order."""


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


@dataclass(frozen=True, slots=True)
class PooledGroup:
    """A group with its ready members in order of trajectory_id."""

    record: GroupRecord
    members: tuple[PooledTrajectory, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """`complete`: the chosen groups are a whole batch; otherwise wait and select again."""

    chosen: tuple[PooledGroup, ...]
    left_out: Mapping[str, str]
    skipped: Mapping[str, str]
    complete: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a group is not chosen. `wait`: may still come; `never`: skip it for good; `foreign`: not for this run."""

    kind: Literal["wait", "never", "foreign"]
    reason: str


def select(pool: Pool, spec: BatchSpec, version: int, run_id: str, already_planned: Collection[str]) -> Selection:
    """The oldest groups that make a batch for `version` of this run, first in, first out.

    First in = lowest (last_progress_us, group_id): time of the fact that completed the group, on its producer's clock.
    """
    chosen: list[PooledGroup] = []
    left_out: dict[str, str] = {}
    skipped: dict[str, str] = {}
    tokens, full = 0, False
    for record in sorted(pool.groups(), key=lambda row: (row.last_progress_us, row.group_id)):
        if record.group_id in already_planned:
            continue
        judged = judge(pool, record, spec, version, run_id)
        if isinstance(judged, Refusal):
            (skipped if judged.kind == "never" else left_out)[record.group_id] = judged.reason
            continue
        tokens += response_tokens(judged, spec)
        full = full or (spec.response_tokens_max is not None and tokens > spec.response_tokens_max)
        if full or len(chosen) == spec.groups_per_batch:
            left_out[record.group_id] = "next_batch"
        else:
            chosen.append(judged)
    return Selection(tuple(chosen), left_out, skipped, full or len(chosen) == spec.groups_per_batch)


def judge(pool: Pool, record: GroupRecord, spec: BatchSpec, version: int, run_id: str) -> PooledGroup | Refusal:
    """The group with its members if this run may train it now, else why not."""
    refusal = _judge_record(record, spec, run_id)
    if refusal is not None:
        return refusal
    group = _with_members(pool, record)
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


def _with_members(pool: Pool, record: GroupRecord) -> PooledGroup | None:
    """Rows of the ready members, or None where the pool moved on since `record` was read."""
    members: list[PooledTrajectory] = []
    for member in record.members:
        if not member.ready:
            continue
        row = pool.trajectory(record.group_id, member.trajectory_id)
        steps = tuple(pool.steps(record.group_id, member.trajectory_id))
        if row is None or record_digest(row) != member.digest or len(steps) != len(row.calls):
            return None
        members.append(PooledTrajectory(row, steps))
    return PooledGroup(record, tuple(members))


def _judge_members(group: PooledGroup, spec: BatchSpec, version: int, run_id: str) -> Refusal | None:
    return (
        _judge_policy(group, run_id)
        or _judge_size(group, spec)
        or _judge_staleness(group, spec, version)
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
    if record.closed:
        return None if ready >= 2 else Refusal("never", f"closed_with_{ready}_ready")
    wanted = record.expected_size or spec.group_size
    if ready < wanted:
        return Refusal("wait", f"members_{ready}_of_{wanted}")
    return None if ready >= 2 else Refusal("never", "declared_with_one_member")


def _judge_staleness(group: PooledGroup, spec: BatchSpec, version: int) -> Refusal | None:
    oldest = min((m.record.min_version for m in group.members if m.record.min_version is not None), default=version)
    stale = version - oldest
    if stale < 0:
        # A version that this run has not made yet: another history of the same run id (a restored log, for example).
        return Refusal("never", f"sampled_by_unknown_version_{oldest}")
    return Refusal("never", "too_stale") if stale > spec.staleness_max else None


def _judge_returns(group: PooledGroup, spec: BatchSpec) -> Refusal | None:
    returns = [member.record.return_total for member in group.members]
    known = [value for value in returns if value is not None]
    if len(known) < len(returns):
        return Refusal("wait", f"reward_missing_for_{len(returns) - len(known)}")
    mean = sum(known) / len(known)
    if spec.reward_mean_min is not None and mean < spec.reward_mean_min:
        return Refusal("never", "reward_mean_low")
    if spec.reward_mean_max is not None and mean > spec.reward_mean_max:
        return Refusal("never", "reward_mean_high")
    if spec.zero_variance == "drop" and max(known) == min(known):
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
    steps = (step for member in group.members for step in member.steps)
    return sum(step.response_length for step in steps if is_trained(step, spec))


def is_trained(step: StepRecord, spec: BatchSpec) -> bool:
    """Whether the response of a step is trained; otherwise it is context only."""
    if not step.trainable or step.position is None:
        return False
    quality = step.curation.quality if step.curation is not None else None
    return spec.quality_min is None or quality is None or quality >= spec.quality_min


def assemble(
    chosen: Iterable[PooledGroup],
    spec: BatchSpec,
    *,
    run_id: str,
    sequence: int,
    version: int,
    seed: int,
    advantages: Advantages,
    envelope: Envelope,
) -> BatchAssembled:
    """The plan: rewards, advantages and masks as they are now, tokens by reference."""
    planned = tuple(trajectory for group in chosen for trajectory in _frozen(group, spec, advantages))
    return BatchAssembled(
        envelope=envelope,
        run_id=run_id,
        sequence=sequence,
        version=version,
        spec=spec.to_json(),
        trajectories=planned,
        seed=seed,
    )


def _frozen(group: PooledGroup, spec: BatchSpec, advantages: Advantages) -> list[PlannedTrajectory]:
    """The baseline is over trajectories, each once, however many calls or training rows it has."""
    returns = [float(member.record.return_total or 0.0) for member in group.members]
    return [
        PlannedTrajectory(
            group_id=group.record.group_id,
            trajectory_id=member.record.trajectory_id,
            reward=reward,
            advantage=advantage,
            min_version=member.record.min_version,
            max_version=member.record.max_version,
            steps=tuple(
                PlannedStep(
                    call_id=step.call_id, position=step.position, digest=step.digest, trained=is_trained(step, spec)
                )
                for step in member.steps
                if step.position is not None
            ),
        )
        for member, reward, advantage in zip(group.members, returns, advantages(returns), strict=True)
    ]


def groups_of(plan: BatchAssembled) -> tuple[str, ...]:
    """group_ids of a plan, each once, in order."""
    return tuple(dict.fromkeys(trajectory.group_id for trajectory in plan.trajectories))

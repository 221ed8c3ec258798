"""Which groups make up a batch, and the plan that freezes them.

Invariant: both functions are functions of the pool's rows, the spec and the run's own history. No clock is read; equal
inputs give equal plans. Every group that is not chosen has a reason that a person can read, of one of two kinds:
`left_out` may change (more members, a reward) or concerns another run; `skipped` never will for this run, so the run
says so once in a BatchSkipped and the group's admission capacity returns.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from datapool import bounds
from datapool.advantages import ADVANTAGES, Advantage, Judged
from datapool.batch_spec import PRIORITY_TAG, BatchSpec
from datapool.selection import (
    Pool,
    PooledGroup,
    PooledTrajectory,
    Refusal,
    is_trained,
    judge,
    plan_bytes,
    response_tokens,
    trained_members,
)
from schemas.events import BatchAssembled, Envelope, GroupRecord, PlannedStep, PlannedTrajectory

NUMBER = re.compile(r"-?\d+(\.\d+)?")
UNJUDGED = Judged(0.0)


@dataclass(frozen=True, slots=True)
class Selection:
    """`complete`: the chosen groups are a whole batch; otherwise wait and select again."""

    chosen: tuple[PooledGroup, ...]
    left_out: Mapping[str, str]
    skipped: Mapping[str, str]
    complete: bool
    foreign: frozenset[str] = frozenset()
    """Of those left out the ones that concern another run or another spec."""


def select(pool: Pool, spec: BatchSpec, version: int, run_id: str, already_planned: Collection[str]) -> Selection:
    """The groups that come first in the spec's order and make a batch for `version` of this run."""
    chosen: list[PooledGroup] = []
    left_out: dict[str, str] = {}
    skipped: dict[str, str] = {}
    foreign: set[str] = set()
    tokens, size, full = 0, 0, False
    for record in ordered(pool.groups(), spec):
        if record.group_id in already_planned:
            continue
        judged = judge(pool, record, spec, version, run_id)
        if isinstance(judged, Refusal):
            (skipped if judged.kind == "never" else left_out)[record.group_id] = judged.reason
            if judged.kind == "foreign":
                foreign.add(record.group_id)
            continue
        tokens += response_tokens(judged, spec)
        size += plan_bytes(judged, spec)
        full = full or size > bounds.PLAN_BYTES_MAX
        full = full or (spec.response_tokens_max is not None and tokens > spec.response_tokens_max)
        if full or len(chosen) == spec.groups_per_batch:
            left_out[record.group_id] = "next_batch"
        else:
            chosen.append(judged)
    complete = full or len(chosen) == spec.groups_per_batch
    return Selection(tuple(chosen), left_out, skipped, complete, frozenset(foreign))


def ordered(groups: Iterable[GroupRecord], spec: BatchSpec) -> list[GroupRecord]:
    """Groups in the spec's order. Old = low (last_progress_us, group_id): the fact that completed the group, on its
    producer's clock."""
    oldest = sorted(groups, key=lambda row: (row.last_progress_us, row.group_id))
    if spec.order == "newest":
        return oldest[::-1]
    return oldest if spec.order == "fifo" else sorted(oldest, key=lambda row: -priority(row))


def priority(record: GroupRecord) -> float:
    """The highest number that a tag `priority:<number>` names, else 0."""
    named = [tag.removeprefix(PRIORITY_TAG) for tag in record.tags if tag.startswith(PRIORITY_TAG)]
    return max((float(number) for number in named if NUMBER.fullmatch(number)), default=0.0)


def assemble(
    chosen: Iterable[PooledGroup],
    spec: BatchSpec,
    *,
    run_id: str,
    sequence: int,
    version: int,
    seed: int,
    envelope: Envelope,
) -> BatchAssembled:
    """The plan: rewards, advantages and masks as they are now, tokens by reference."""
    groups = list(chosen)
    earned = [[member.judged or UNJUDGED for member in group.members] for group in groups]
    advantages = ADVANTAGES[spec.algorithm](earned)
    return BatchAssembled(
        envelope=envelope,
        run_id=run_id,
        sequence=sequence,
        version=version,
        spec=spec.to_json(),
        trajectories=tuple(
            trajectory
            for group, of_group in zip(groups, advantages, strict=True)
            for trajectory in _frozen(group, spec, of_group)
        ),
        seed=seed,
    )


def _frozen(group: PooledGroup, spec: BatchSpec, advantages: Iterable[Advantage]) -> list[PlannedTrajectory]:
    """Members that are not trained keep their reward, for who reads how well the policy did, and have no steps."""
    trained = {member.record.trajectory_id for member in trained_members(group, spec)}
    return [
        PlannedTrajectory(
            group_id=group.record.group_id,
            trajectory_id=member.record.trajectory_id,
            reward=(member.judged or UNJUDGED).total,
            advantage=advantage.whole,
            min_version=member.record.min_version,
            max_version=member.record.max_version,
            steps=_steps(member, spec, advantage) if member.record.trajectory_id in trained else (),
        )
        for member, advantage in zip(group.members, advantages, strict=True)
    ]


def _steps(member: PooledTrajectory, spec: BatchSpec, advantage: Advantage) -> tuple[PlannedStep, ...]:
    own = advantage.steps or (None,) * len(member.steps)
    return tuple(
        PlannedStep(
            call_id=step.call_id,
            position=step.position,
            digest=step.digest,
            trained=is_trained(step, member, spec),
            advantage=value,
        )
        for step, value in zip(member.steps, own, strict=True)
        if step.position is not None
    )


def groups_of(plan: BatchAssembled) -> tuple[str, ...]:
    """group_ids of a plan, each once, in order."""
    return tuple(dict.fromkeys(trajectory.group_id for trajectory in plan.trajectories))

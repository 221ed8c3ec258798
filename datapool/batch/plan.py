"""The plan that freezes a batch: rewards, advantages and masks, tokens by reference. Pure.

Invariant: a plan is a function of the chosen groups and the spec. No clock is read; equal inputs give equal plans.
"""

import json
from collections.abc import Iterable

from claw_r1.datapool.batch.advantages import Advantage, Return
from claw_r1.datapool.batch.candidates import PooledGroup, PooledTrajectory
from claw_r1.datapool.batch.figures import figures_of
from claw_r1.datapool.batch.masks import AnnotatedStep, is_trained, is_young
from claw_r1.datapool.batch.members import trained_members
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.events import BatchAssembled, Envelope, PlannedStep, PlannedTrajectory, StepRecord

NO_REWARD = Return(0.0)


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
    groups, oldest = list(chosen), spec.oldest_version(version)
    earned = [[member.earned or NO_REWARD for member in group.members] for group in groups]
    advantages = spec.estimator.function(earned)
    return BatchAssembled(
        envelope=envelope,
        run_id=run_id,
        sequence=sequence,
        version=version,
        spec=spec.to_json(),
        trajectories=tuple(
            trajectory
            for group, of_group in zip(groups, advantages, strict=True)
            for trajectory in _frozen(group, spec, of_group, oldest)
        ),
        seed=seed,
        oldest_version=oldest,
    )


def _frozen(
    group: PooledGroup, spec: BatchSpec, advantages: Iterable[Advantage], oldest: int | None
) -> list[PlannedTrajectory]:
    """Members that are not trained keep their reward, for who reads how well the policy did, and have no steps."""
    trained = {member.record.trajectory_id for member in trained_members(group, spec)}
    return [
        PlannedTrajectory(
            group_id=group.record.group_id,
            trajectory_id=member.record.trajectory_id,
            reward=(member.earned or NO_REWARD).total,
            advantage=advantage.whole,
            min_version=member.record.min_version if spec.policy == "own" else None,
            max_version=member.record.max_version if spec.policy == "own" else None,
            steps=_steps(member, spec, advantage, oldest) if member.record.trajectory_id in trained else (),
            figures=figures_of(member),
        )
        for member, advantage in zip(group.members, advantages, strict=True)
    ]


def _steps(
    member: PooledTrajectory, spec: BatchSpec, advantage: Advantage, oldest: int | None
) -> tuple[PlannedStep, ...]:
    own = advantage.steps or (None,) * len(member.steps)
    return tuple(
        PlannedStep(
            call_id=step.call_id,
            position=step.position,
            digest=step.digest,
            trained=is_trained(step, member, spec) and is_young(step, oldest),
            advantage=value,
            reward=reward,
            weights=weights_of(step, member, spec),
        )
        for step, value, reward in zip(member.steps, own, _rewards(member), strict=True)
        if step.position is not None
    )


def _rewards(member: PooledTrajectory) -> list[float]:
    """Returns the reward of each call; the trajectory's own rewards are added to the last one."""
    earned = member.earned or NO_REWARD
    rewards = list(earned.steps) or [0.0] * len(member.steps)
    if rewards:
        rewards[-1] += earned.outcome
    return rewards


def weights_of(step: StepRecord, member: PooledTrajectory, spec: BatchSpec) -> tuple[float, ...] | None:
    """Returns the weights of policy loss, cross-entropy and reference KL, by the first tag of `mix` that the step
    carries; None: no such tag."""
    tags = AnnotatedStep(step, member).tags if spec.mix else frozenset[str]()
    return next((tuple(spec.mix[tag]) for tag in sorted(spec.mix) if tag in tags), None)


def is_logged_data(plan: BatchAssembled) -> bool:
    """Returns whether the plan imitates anybody's replies (`policy: any`): versions and temperatures of them mean
    nothing here."""
    return bool(json.loads(plan.spec).get("policy") == "any")


def staleness_of(plan: BatchAssembled) -> list[int]:
    """Returns how many versions behind the oldest token of each trajectory is that may be trained; none of a trajectory
    without versions."""
    oldest = plan.oldest_version or 0
    return [plan.version - max(t.min_version, oldest) for t in plan.trajectories if t.min_version is not None]


def groups_of(plan: BatchAssembled) -> tuple[str, ...]:
    """group_ids of a plan, each once, in order."""
    return tuple(dict.fromkeys(trajectory.group_id for trajectory in plan.trajectories))

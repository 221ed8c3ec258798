"""The metrics of a plan, before anything is computed."""

import json
import statistics
from collections.abc import Sequence

from claw_r1.datapool.batch.advantages import ESTIMATORS
from claw_r1.datapool.batch.candidates import all_equal
from claw_r1.datapool.batch.plan import groups_of, staleness_of
from claw_r1.schemas.events import BatchAssembled, PlannedTrajectory
from claw_r1.trainer.plan.episode_metrics import episode_metrics


def plan_metrics(plan: BatchAssembled) -> dict[str, float]:
    """Reward, staleness (version trained - oldest version of the trajectory that may be trained), zero-variance share, and
    where no critic makes the advantages, the share of trained responses that have one; and the metrics of the episodes."""
    rewards = [trajectory.reward for trajectory in plan.trajectories]
    stale = staleness_of(plan) or [0]
    by_group = [_rewards_of(plan.trajectories, group_id) for group_id in groups_of(plan)]
    return {
        "reward": statistics.fmean(rewards),
        "reward_min": min(rewards),
        "reward_max": max(rewards),
        "reward_std": statistics.pstdev(rewards),
        "staleness_mean": statistics.fmean(stale),
        "staleness_max": float(max(stale)),
        "zero_variance_share": statistics.fmean(float(all_equal(group)) for group in by_group),
        "groups": float(len(by_group)),
        "trajectories": float(len(rewards)),
        "steps": float(sum(len(trajectory.steps) for trajectory in plan.trajectories)),
        **_advantage_share(plan),
        **episode_metrics(plan),
    }


def _advantage_share(plan: BatchAssembled) -> dict[str, float]:
    """A response that is imitated by its tag counts as one that has an advantage: it teaches."""
    if ESTIMATORS[json.loads(plan.spec)["algorithm"]].critic:
        return {}
    steps = [
        (trajectory.advantage, step) for trajectory in plan.trajectories for step in trajectory.steps if step.trained
    ]
    teaching = [
        (whole if step.advantage is None else step.advantage) != 0 or bool(step.weights and step.weights[1])
        for whole, step in steps
    ]
    return {"advantage_share": statistics.fmean(teaching)} if teaching else {}


def _rewards_of(trajectories: Sequence[PlannedTrajectory], group_id: str) -> list[float]:
    return [trajectory.reward for trajectory in trajectories if trajectory.group_id == group_id]

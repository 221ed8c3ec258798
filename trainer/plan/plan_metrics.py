"""What a plan says of its batch, before anything is computed."""

import statistics
from collections.abc import Sequence

from datapool.batch.plan import groups_of
from schemas.events import BatchAssembled, PlannedTrajectory


def plan_metrics(plan: BatchAssembled) -> dict[str, float]:
    """Reward, staleness (version trained - oldest version of the trajectory that may be trained) and zero-variance share."""
    oldest = plan.oldest_version or 0
    rewards = [trajectory.reward for trajectory in plan.trajectories]
    stale = [plan.version - max(t.min_version, oldest) for t in plan.trajectories if t.min_version is not None] or [0]
    by_group = [_rewards_of(plan.trajectories, group_id) for group_id in groups_of(plan)]
    return {
        "reward": statistics.fmean(rewards),
        "reward_min": min(rewards),
        "reward_max": max(rewards),
        "reward_std": statistics.pstdev(rewards),
        "staleness_mean": statistics.fmean(stale),
        "staleness_max": float(max(stale)),
        "zero_variance_share": statistics.fmean(float(max(group) == min(group)) for group in by_group),
        "groups": float(len(by_group)),
        "trajectories": float(len(rewards)),
        "steps": float(sum(len(trajectory.steps) for trajectory in plan.trajectories)),
    }


def _rewards_of(trajectories: Sequence[PlannedTrajectory], group_id: str) -> list[float]:
    return [trajectory.reward for trajectory in trajectories if trajectory.group_id == group_id]

"""What a batch looked like to the policy that was trained on it, before the update.

Sums are kept per token, so that micro-batches of any size give the same metrics. All are over trained tokens.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from datapool.batch.plan import groups_of
from schemas.events import BatchAssembled, PlannedTrajectory
from trainer.learn.losses import log_ratio


@dataclass(slots=True)
class TokenTotals:
    """Running sums over the trained tokens of a batch."""

    tokens: int = 0
    loss: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    k1: float = 0.0
    k3: float = 0.0
    ratio: float = 0.0
    ratio_squared: float = 0.0
    gap_tokens: int = 0
    gap_max: float = field(default=0.0)

    def add(
        self,
        *,
        mask: Tensor,
        losses: Tensor,
        clipped: Tensor,
        entropy: Tensor,
        logprobs: Tensor,
        behaviour: Tensor,
        current: Tensor,
    ) -> None:
        """All tensors of one shape. `current` marks tokens that the version being trained sampled."""
        with torch.no_grad():
            chosen = mask.bool()
            lr = log_ratio(logprobs, behaviour)[chosen].double()
            ratio = lr.exp()
            self.tokens += int(chosen.sum())
            self.loss += float(losses[chosen].double().sum())
            self.entropy += float(entropy[chosen].double().sum())
            self.clipped += float(clipped[chosen].sum())
            self.k1 += float(-lr.sum())
            self.k3 += float((ratio - 1 - lr).sum())
            self.ratio += float(ratio.sum())
            self.ratio_squared += float((ratio * ratio).sum())
            self._add_gap((logprobs - behaviour)[chosen & current])

    def _add_gap(self, gaps: Tensor) -> None:
        if gaps.numel():
            self.gap_tokens += gaps.numel()
            self.gap_max = max(self.gap_max, float(gaps.abs().max()))

    def means(self) -> dict[str, float]:
        """Per-token means. `kl_k1`, `kl_k3` estimate KL(engine || trainer) from the engine's samples (Schulman 2020).

        `ess`: effective sample size of the importance ratios over their number, in (0, 1]. `max_logprob_gap`:
        max |engine - trainer| over tokens of the very version that is trained; absent where the batch has none.
        """
        n = max(self.tokens, 1)
        gap = {"max_logprob_gap": self.gap_max} if self.gap_tokens else {}
        return {
            "loss": self.loss / n,
            "entropy": self.entropy / n,
            "clip_share": self.clipped / n,
            "kl_k1": self.k1 / n,
            "kl_k3": self.k3 / n,
            "ratio_mean": self.ratio / n,
            "ess": self.ratio**2 / (n * self.ratio_squared) if self.ratio_squared else 1.0,
            "trained_tokens": float(self.tokens),
            "gap_tokens": float(self.gap_tokens),
            **gap,
        }


def plan_metrics(plan: BatchAssembled) -> dict[str, float]:
    """Reward, staleness (version trained - oldest version that sampled the trajectory) and zero-variance share."""
    rewards = [trajectory.reward for trajectory in plan.trajectories]
    stale = [plan.version - t.min_version for t in plan.trajectories if t.min_version is not None] or [0]
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


def finite(metrics: dict[str, float]) -> dict[str, float]:
    """Metrics as events and JSON carry them: what is not a finite number is left out."""
    return {name: float(value) for name, value in sorted(metrics.items()) if math.isfinite(value)}

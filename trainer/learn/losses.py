"""Policy losses per token, and their sum over a whole batch.

The denominator of the ratio is the engine's log-probability of the token it sampled, so a stale or slightly different
behaviour policy is corrected for, not assumed away.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from trainer.algorithms.losses import TokenLosses

LOG_RATIO_MAX = 20.0
"""Bound on |log ratio| before it is exponentiated; e^20 is far outside every clip."""


Loss = Callable[..., TokenLosses]
"""(logprobs, behaviour, advantages, *, clip_low, clip_high) -> TokenLosses; all tensors of one shape."""


def log_ratio(logprobs: Tensor, behaviour: Tensor) -> Tensor:
    """log(pi / behaviour) per token, bounded."""
    return (logprobs - behaviour).clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)


def ppo_clip(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float
) -> TokenLosses:
    """-min(r A, clip(r, 1 - low, 1 + high) A). PPO, arXiv 1707.06347; a higher upper bound: DAPO, arXiv 2503.14476."""
    ratio = log_ratio(logprobs, behaviour).exp()
    free = -ratio * advantages
    bounded = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    return TokenLosses(torch.maximum(free, bounded), bounded > free)


def ppo_dual_clip(
    logprobs: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    negative_max: float = 3.0,
) -> TokenLosses:
    """ppo_clip, and where A < 0 at most -negative_max * A. Dual clip, arXiv 1912.09729."""
    once = ppo_clip(logprobs, behaviour, advantages, clip_low=clip_low, clip_high=clip_high)
    ceiling = -negative_max * advantages
    over = (advantages < 0) & (once.values > ceiling)
    return TokenLosses(torch.where(over, ceiling, once.values), once.clipped | over)


def cross_entropy(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float
) -> TokenLosses:
    """-A log pi: maximum likelihood of what is trained, whoever sampled it."""
    del behaviour, clip_low, clip_high  # every loss is called alike; there is no ratio here
    return TokenLosses(-advantages * logprobs, torch.zeros_like(logprobs, dtype=torch.bool))


LOSSES: Mapping[str, Loss] = {"ppo_clip": ppo_clip, "ppo_dual_clip": ppo_dual_clip, "cross_entropy": cross_entropy}


def bound(name: str, *, clip_low: float, clip_high: float) -> Loss:
    """The loss of that name with its bounds set."""
    return partial(LOSSES[name], clip_low=clip_low, clip_high=clip_high)

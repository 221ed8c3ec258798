"""Policy losses per trained token.

The ratio's denominator is by default the engine's log-probability of the token it sampled, so a stale or slightly
different behaviour policy is corrected for, not assumed away (`corrections.py` gives other denominators).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

LOG_RATIO_MAX = 20.0
"""Bound on |log ratio| before it is exponentiated; e^20 is far outside every clip."""


@dataclass(frozen=True, slots=True)
class TokenLosses:
    """`values`, `clipped`: the shape of the inputs. `clipped` marks tokens whose gradient the clip removed, or whose
    weight it bounded."""

    values: Tensor
    clipped: Tensor


Loss = Callable[..., TokenLosses]
"""(logprobs, behaviour, advantages, sequences, *, clip_low, clip_high) -> TokenLosses; every vector is [T].

sequences: int64, the response (of one call) that each token belongs to, below T. All trained tokens of a response must
be there together."""


def log_ratio(logprobs: Tensor, behaviour: Tensor) -> Tensor:
    """log(pi / behaviour) per token, bounded."""
    return (logprobs - behaviour).clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)


def sequence_means(values: Tensor, sequences: Tensor) -> Tensor:
    """values [T] -> [T]: at each token the mean over the tokens of its sequence. Sequences are numbered below T."""
    zeros = torch.zeros_like(values)
    sums = zeros.index_add(0, sequences, values)
    counts = zeros.index_add(0, sequences, torch.ones_like(values))
    return (sums / counts.clamp(min=1))[sequences]


def ppo_clip(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, sequences: Tensor, *, clip_low: float, clip_high: float
) -> TokenLosses:
    """-min(r A, clip(r, 1 - low, 1 + high) A). PPO, arXiv 1707.06347; a higher upper bound: DAPO, arXiv 2503.14476."""
    del sequences  # every loss is called alike
    return _clipped(log_ratio(logprobs, behaviour).exp(), advantages, clip_low, clip_high)


def _clipped(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> TokenLosses:
    free = -ratio * advantages
    bounded = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    return TokenLosses(torch.maximum(free, bounded), bounded > free)


def ppo_dual_clip(
    logprobs: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    sequences: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    negative_max: float = 3.0,
) -> TokenLosses:
    """ppo_clip, and where A < 0 at most -negative_max * A. Dual clip, arXiv 1912.09729."""
    once = ppo_clip(logprobs, behaviour, advantages, sequences, clip_low=clip_low, clip_high=clip_high)
    ceiling = -negative_max * advantages
    over = (advantages < 0) & (once.values > ceiling)
    return TokenLosses(torch.where(over, ceiling, once.values), once.clipped | over)


def gspo(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, sequences: Tensor, *, clip_low: float, clip_high: float
) -> TokenLosses:
    """ppo_clip with the ratio of the whole response: s = exp(mean of log(pi / behaviour) over its tokens).

    GSPO, arXiv 2507.18071, in the form per token of its section 4.3: s_t = sg(s) pi_t / sg(pi_t), so that the value and the
    clip are those of the response, and the gradient of a token is s A grad log pi_t. With equal advantages in a
    response and the norm `sequence_mean` this is the paper's objective. It clips at 3e-4 and 4e-4.
    """
    whole = sequence_means(log_ratio(logprobs, behaviour), sequences).detach()
    return _clipped((whole + logprobs - logprobs.detach()).exp(), advantages, clip_low, clip_high)


def cispo(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, sequences: Tensor, *, clip_low: float, clip_high: float
) -> TokenLosses:
    """-sg(min(r, 1 + high)) A log pi: the weight is clipped, and no token loses its gradient.

    CISPO: MiniMax-M1, arXiv 2506.13585, which sets no lower bound. The gradient is that of the correction `tis` with the cap 1 + high.
    """
    del sequences, clip_low  # every loss is called alike
    ratio = log_ratio(logprobs, behaviour).exp().detach()
    return TokenLosses(-ratio.clamp(max=1 + clip_high) * advantages * logprobs, ratio > 1 + clip_high)


def cross_entropy(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, sequences: Tensor, *, clip_low: float, clip_high: float
) -> TokenLosses:
    """-A log pi: maximum likelihood of the trained tokens, from any policy."""
    del behaviour, sequences, clip_low, clip_high  # every loss is called alike; there is no ratio here
    return TokenLosses(-advantages * logprobs, torch.zeros_like(logprobs, dtype=torch.bool))


LOSSES: Mapping[str, Loss] = {
    "ppo_clip": ppo_clip,
    "ppo_dual_clip": ppo_dual_clip,
    "gspo": gspo,
    "cispo": cispo,
    "cross_entropy": cross_entropy,
}


def bound(name: str, *, clip_low: float, clip_high: float) -> Loss:
    """The loss of that name with its bounds set."""
    return partial(LOSSES[name], clip_low=clip_low, clip_high=clip_high)

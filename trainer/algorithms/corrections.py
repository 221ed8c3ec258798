"""Off-policy corrections: what the ratio of the loss is taken against, and a weight for each token's loss.

Three policies meet: the behaviour policy (the engine, at whatever version sampled the token), the proximal policy (the
weights before this batch's first optimizer step, recomputed by the trainer) and the policy under training.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from claw_r1.trainer.algorithms.losses import log_ratio, sequence_means


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionBounds:
    """`cap`: of the weights of TIS and decoupled PPO, above 1.

    `low`, `high`: the band of IcePop. `mask`: bounds of `sequence_mask`, `negatives`: the one of `stale_negatives`.
    Both come on top of every correction but `metrics`.
    None: no mask.
    """

    cap: float = 2.0
    low: float = 0.5
    high: float = 5.0
    mask: tuple[float, float] | None = None
    negatives: float | None = None


class Corrected(NamedTuple):
    """All [T], none with a gradient."""

    denominator: Tensor
    """Log-probabilities that stand in the denominator of the loss's ratio: its `behaviour`."""
    weights: Tensor
    """Factor of each token's policy loss."""
    measured: Tensor
    """The weights that TIS would give, for the metrics; `weights` where TIS is applied."""


def truncated(old: Tensor, behaviour: Tensor, *, cap: float) -> Tensor:
    """min(old / behaviour, cap) per token, from log-probabilities [T]. TIS: Yao et al. 2025, "Your Efficient RL Framework
    Secretly Brings You Off-Policy RL Training"; the truncation is IMPALA's, arXiv 1802.01561."""
    return log_ratio(old, behaviour).exp().clamp(max=cap).detach()


def sequence_mask(old: Tensor, behaviour: Tensor, sequences: Tensor, *, low: float, high: float) -> Tensor:
    """1 for tokens of responses whose geometric mean of old / behaviour lies in [low, high], else 0. [T]

    Geometric-mean rejection: Liu et al. 2025, "When Speed Kills Stability"; it does not depend on the length.
    """
    mean = sequence_means(log_ratio(old, behaviour), sequences).exp().detach()
    return ((mean >= low) & (mean <= high)).to(old.dtype)


def stale_negatives(
    logprobs: Tensor, behaviour: Tensor, advantages: Tensor, sequences: Tensor, *, delta: float
) -> Tensor:
    """0 for tokens with A < 0 of responses whose mean of log(behaviour / policy) is above delta, else 1. [T]

    Off-policy sequence masking of DeepSeek-V3.2, arXiv 2512.02556.
    """
    mean = sequence_means(-log_ratio(logprobs, behaviour), sequences).detach()
    return (~((advantages < 0) & (mean > delta))).to(behaviour.dtype)


def none(logprobs: Tensor, proximal: Tensor, behaviour: Tensor, bounds: CorrectionBounds) -> Corrected:
    """The ratio is policy / behaviour, and its clip is all that bounds it."""
    del logprobs
    return Corrected(behaviour, torch.ones_like(behaviour), truncated(proximal, behaviour, cap=bounds.cap))


def tis(logprobs: Tensor, proximal: Tensor, behaviour: Tensor, bounds: CorrectionBounds) -> Corrected:
    """Weight min(policy / behaviour, cap), at each optimizer step anew; the ratio is policy / itself, so nothing is clipped."""
    del proximal
    weights = truncated(logprobs, behaviour, cap=bounds.cap)
    return Corrected(logprobs.detach(), weights, weights)


def decoupled(logprobs: Tensor, proximal: Tensor, behaviour: Tensor, bounds: CorrectionBounds) -> Corrected:
    """Weight min(proximal / behaviour, cap); the ratio is policy / proximal, so the clip bounds the step alone.

    Decoupled PPO: Hilton et al., arXiv 2110.00641; AReaL, arXiv 2505.24298. In a plan's first step policy and proximal are
    one, so a run with one optimizer step per batch learns exactly as with `tis`.
    """
    del logprobs
    weights = truncated(proximal, behaviour, cap=bounds.cap)
    return Corrected(proximal, weights, weights)


def icepop(logprobs: Tensor, proximal: Tensor, behaviour: Tensor, bounds: CorrectionBounds) -> Corrected:
    """Weight proximal / behaviour in [low, high], else 0; the ratio is policy / proximal.

    IcePop: Ling Team 2025, "Small Leak Can Sink a Great Ship"; arXiv 2512.16144, equation 1.
    """
    del logprobs
    ratio = log_ratio(proximal, behaviour).exp().detach()
    weights = ratio * ((ratio >= bounds.low) & (ratio <= bounds.high))
    return Corrected(proximal, weights, weights)


@dataclass(frozen=True, slots=True)
class Correction:
    """A row of `CORRECTIONS`. `proximal`: whether the proximal log-probabilities must be recomputed; where they need not, the
    policy's own stand for them."""

    function: Callable[[Tensor, Tensor, Tensor, CorrectionBounds], Corrected]
    proximal: bool = False


CORRECTIONS: Mapping[str, Correction] = {
    "none": Correction(none),
    "metrics": Correction(none, proximal=True),
    "tis": Correction(tis),
    "decoupled": Correction(decoupled, proximal=True),
    "icepop": Correction(icepop, proximal=True),
}
"""By name. `metrics` measures what `decoupled` would do and does `none`."""


def corrected(
    name: str,
    logprobs: Tensor,
    proximal: Tensor | None,
    behaviour: Tensor,
    advantages: Tensor,
    sequences: Tensor,
    bounds: CorrectionBounds,
) -> Corrected:
    """The correction of that name, all vectors [T]; `sequences` as in `losses.Loss`.

    proximal: None where it was not recomputed.
    """
    old = logprobs.detach() if proximal is None else proximal
    result = CORRECTIONS[name].function(logprobs, old, behaviour, bounds)
    kept = _kept(logprobs, old, behaviour, advantages, sequences, bounds)
    weights = result.weights if name == "metrics" else result.weights * kept
    return result._replace(weights=weights, measured=result.measured * kept)


def _kept(
    logprobs: Tensor, old: Tensor, behaviour: Tensor, advantages: Tensor, sequences: Tensor, bounds: CorrectionBounds
) -> Tensor:
    """1 for tokens that no mask takes out, else 0; [T]."""
    kept = torch.ones_like(behaviour)
    if bounds.mask is not None:
        kept *= sequence_mask(old, behaviour, sequences, low=bounds.mask[0], high=bounds.mask[1])
    if bounds.negatives is not None:
        kept *= stale_negatives(logprobs, behaviour, advantages, sequences, delta=bounds.negatives)
    return kept

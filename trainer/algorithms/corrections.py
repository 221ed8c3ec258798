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


def none(logprobs: Tensor, proximal: Tensor, behaviour: Tensor, cap: float) -> Corrected:
    """The ratio is policy / behaviour, and its clip is all that bounds it."""
    del logprobs
    return Corrected(behaviour, torch.ones_like(behaviour), truncated(proximal, behaviour, cap=cap))


def tis(logprobs: Tensor, proximal: Tensor, behaviour: Tensor, cap: float) -> Corrected:
    """Weight min(policy / behaviour, cap), at each optimizer step anew; the ratio is policy / itself, so nothing is clipped."""
    del proximal
    weights = truncated(logprobs, behaviour, cap=cap)
    return Corrected(logprobs.detach(), weights, weights)


def decoupled(logprobs: Tensor, proximal: Tensor, behaviour: Tensor, cap: float) -> Corrected:
    """Weight min(proximal / behaviour, cap); the ratio is policy / proximal, so the clip bounds the step alone.

    Decoupled PPO: Hilton et al., arXiv 2110.00641; AReaL, arXiv 2505.24298. In a plan's first step policy and proximal are
    one, so a run with one optimizer step per batch learns exactly as with `tis`.
    """
    del logprobs
    weights = truncated(proximal, behaviour, cap=cap)
    return Corrected(proximal, weights, weights)


@dataclass(frozen=True, slots=True)
class Correction:
    """A row of `CORRECTIONS`. `proximal`: whether the proximal log-probabilities must be recomputed; where they need not, the
    policy's own stand for them."""

    function: Callable[[Tensor, Tensor, Tensor, float], Corrected]
    proximal: bool = False


CORRECTIONS: Mapping[str, Correction] = {
    "none": Correction(none),
    "metrics": Correction(none, proximal=True),
    "tis": Correction(tis),
    "decoupled": Correction(decoupled, proximal=True),
}
"""By name. `metrics` measures what `decoupled` would do and does `none`."""


def corrected(
    name: str,
    logprobs: Tensor,
    proximal: Tensor | None,
    behaviour: Tensor,
    sequences: Tensor,
    *,
    cap: float,
    mask: tuple[float, float] | None = None,
) -> Corrected:
    """The correction of that name, all vectors [T]; `sequences` as in `losses.Loss`.

    proximal: None where it was not recomputed. cap: of the weights, above 1. mask: bounds of `sequence_mask`, which comes
    on top of every correction but `metrics`; None: none.
    """
    old = logprobs.detach() if proximal is None else proximal
    result = CORRECTIONS[name].function(logprobs, old, behaviour, cap)
    if mask is None:
        return result
    kept = sequence_mask(old, behaviour, sequences, low=mask[0], high=mask[1])
    weights = result.weights if name == "metrics" else result.weights * kept
    return result._replace(weights=weights, measured=result.measured * kept)

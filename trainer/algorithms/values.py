"""The critic's loss, and how much of the returns it explains."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from claw_r1.trainer.algorithms.losses import TokenLosses


def value_loss(values: Tensor, returns: Tensor, old: Tensor, *, clip: float) -> TokenLosses:
    """max((V - R)^2, (clip(V, old - c, old + c) - R)^2) / 2 per token, all [T]. PPO's implementations: Engstrom et al.,
    arXiv 2005.12729.

    old: values before the batch's first step, without gradient.
    """
    free = (values - returns) ** 2
    bounded = (old + (values - old).clamp(-clip, clip) - returns) ** 2
    return TokenLosses(torch.maximum(free, bounded) / 2, bounded > free)


def explained_variance(values: NDArray[np.float64], returns: NDArray[np.float64]) -> float:
    """1 - Var(R - V) / Var(R), over the tokens of a batch: 1 is perfect, 0 no better than a constant. nan where all R are equal."""
    spread = float(np.var(returns)) if len(returns) else 0.0
    return 1 - float(np.var(returns - values)) / spread if spread > 0 else float("nan")

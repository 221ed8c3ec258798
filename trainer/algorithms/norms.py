"""The factors of the losses of trained tokens, so that the loss of a batch is a plain sum.

Invariant: scales are computed once over all tokens that one optimizer step trains, before they are cut into micro-batches
or dealt to ranks: how they are cut changes nothing.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Scales = NDArray[np.float64]


def token_mean(sequences: Indices, trajectories: Indices, n_trajectories: int, loss_length: int) -> Scales:
    """1 / T: every token weighs the same, a long reply more than a short one. DAPO, arXiv 2503.14476."""
    del trajectories, n_trajectories, loss_length  # every norm is called alike
    return np.full(len(sequences), 1 / max(len(sequences), 1))


def sequence_mean(sequences: Indices, trajectories: Indices, n_trajectories: int, loss_length: int) -> Scales:
    """1 / (S T_s): every response weighs the same. GRPO, arXiv 2402.03300; GSPO, arXiv 2507.18071."""
    del trajectories, n_trajectories, loss_length
    _, place, counts = np.unique(sequences, return_inverse=True, return_counts=True)
    return 1 / (max(len(counts), 1) * counts[place].astype(np.float64))


def trajectory_mean(sequences: Indices, trajectories: Indices, n_trajectories: int, loss_length: int) -> Scales:
    """1 / (N T_i): every trajectory weighs the same, however many calls it has. GRPO where the reply is the whole episode."""
    del sequences, loss_length
    _, place, counts = np.unique(trajectories, return_inverse=True, return_counts=True)
    return 1 / (n_trajectories * counts[place].astype(np.float64))


def constant(sequences: Indices, trajectories: Indices, n_trajectories: int, loss_length: int) -> Scales:
    """1 / (N L): a token weighs the same in every batch, whatever the others' lengths. Dr. GRPO, arXiv 2503.20783."""
    del trajectories
    return np.full(len(sequences), 1 / (n_trajectories * loss_length))


Norm = Callable[[Indices, Indices, int, int], Scales]
NORMS: Mapping[str, Norm] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "trajectory_mean": trajectory_mean,
    "constant": constant,
}


def scales(name: str, sequences: Indices, trajectories: Indices, *, n_trajectories: int, loss_length: int) -> Scales:
    """[T]: the loss is sum(scale * loss of the token).

    sequences, trajectories: [T], index of the response (of one call) and of the trajectory of each trained token, over all
    tokens of the optimizer step. n_trajectories: those that the step counts (N), trained or only in a baseline.
    loss_length: tokens (L), of `constant` alone.
    """
    return NORMS[name](sequences, trajectories, n_trajectories, loss_length)

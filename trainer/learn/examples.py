"""What is trained, free of how it is laid out: sequences of token ids, and flat vectors about their trained tokens.

Invariant: everything that depends on the whole batch (advantages, scales) stands in these vectors before anything is cut
into micro-batches or dealt to ranks, so that no cut changes a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Norm = Literal["token_mean", "constant"]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One sequence of n token ids, of which T are trained. All vectors but `ids` have length T, in order of `at`.

    `at`: where in `ids` each trained token stands, >= 1. `responses`, `trajectories`: whose token it is, by index within
    the batch; a response is what one call sampled. `scale`: what its loss is multiplied by; the loss of a batch is the
    plain sum of scale x loss. `rewards`: given after this token. `weights`: [T, 3], of policy loss, cross-entropy and
    reference KL. `group`: index of its group within the batch.
    """

    ids: NDArray[np.int32]
    at: Ints
    behaviour: Floats
    temperatures: Floats
    advantages: Floats
    versions: Ints
    responses: Ints
    trajectories: Ints
    rewards: Floats
    weights: Floats
    scale: Floats
    group: int = 0

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class LearnerBatch:
    """All that any rank must know of a batch. `trajectories`: how many its plan has, untrained ones included."""

    examples: Sequence[Example]
    version: int
    seed: int
    trajectories: int


def scaled(examples: Sequence[Example], norm: Norm, *, trajectories: int, loss_length: int) -> list[Example]:
    """The same examples with the scale that `norm` gives to each of their tokens, all of them together being the batch.

    token_mean: 1 / trained tokens (DAPO, arXiv 2503.14476). constant: 1 / (trajectories x loss_length), Dr. GRPO,
    arXiv 2503.20783, where a token weighs the same however long the replies of its batch are.
    """
    tokens = sum(len(example.at) for example in examples)
    divisor = max(1, tokens) if norm == "token_mean" else trajectories * loss_length
    return [replace(each, scale=np.full(len(each.at), 1 / divisor, dtype=np.float32)) for each in examples]

"""What is trained, free of how it is laid out: sequences of token ids, and flat vectors about their trained tokens.

Invariant: everything that depends on the whole batch (advantages, scales) stands in these vectors before anything is cut
into micro-batches or dealt to ranks, so that no cut changes a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainer.algorithms.norms import scales

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One sequence of n token ids, of which T are trained. All vectors but `ids` have length T, in order of `at`.

    `proximal`: log-probabilities before the first step of the batch, None where they were not computed. `at`: where in `ids` each trained token stands, >= 1. `responses`, `trajectories`: whose token it is, by index within
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
    proximal: Floats | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class LearnerBatch:
    """All that any rank must know of a batch.

    `sequence`: of its plan. `group_sizes`: by index of the group, how many trajectories the plan has, untrained ones
    included.
    """

    examples: Sequence[Example]
    version: int
    seed: int
    sequence: int
    group_sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """What one optimizer step trains: whole groups. `index`: of the step within its batch, empty ones counted."""

    index: int
    examples: list[Example]
    trajectories: int


def mini_batches(batch: LearnerBatch, count: int, epochs: int) -> list[MiniBatch]:
    """The groups of a batch in `count` parts, `epochs` times, dealt anew for each epoch by the seed of the plan.

    A part whose groups have nothing to train is left out.
    """
    dice = np.random.default_rng(batch.seed)
    made: list[MiniBatch] = []
    for index in range(epochs * count):
        if index % count == 0:
            parts = np.array_split(dice.permutation(len(batch.group_sizes)), count)
        groups = set(parts[index % count].tolist())
        examples = [example for example in batch.examples if example.group in groups]
        if examples:
            made.append(MiniBatch(index, examples, sum(batch.group_sizes[group] for group in groups)))
    return made


def scaled(examples: Sequence[Example], norm: str, *, trajectories: int, loss_length: int) -> list[Example]:
    """The same examples with the scale that `norm` (of `algorithms.norms.NORMS`) gives to each of their tokens, all of them
    together being what one optimizer step trains. trajectories: of the batch, untrained ones included."""
    if not examples:
        return []
    per_token = scales(
        norm,
        np.concatenate([example.responses for example in examples]),
        np.concatenate([example.trajectories for example in examples]),
        n_trajectories=trajectories,
        loss_length=loss_length,
    ).astype(np.float32)
    ends = np.cumsum([len(example.at) for example in examples])
    parts = np.split(per_token, ends[:-1])
    return [replace(example, scale=part) for example, part in zip(examples, parts, strict=True)]

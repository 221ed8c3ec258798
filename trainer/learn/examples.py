"""The examples to train, free of how they are laid out: sequences of token ids, and flat vectors about their trained tokens.

Invariant: everything that depends on the whole batch (advantages, scales) stands in these vectors before anything is
cut into micro-batches or dealt to ranks, so that no cut changes a number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from claw_r1.trainer.algorithms.norms import scales

Float32s = NDArray[np.float32]
Ints = NDArray[np.int64]
ENVIRONMENTS_MAX = 8
"""Environments of a batch with metrics of their own; all others have one together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One sequence of n token ids, of which T are trained. All vectors but `ids` have length T, in order of `at`.

    `at`: position of each trained token in `ids`, >= 1. `responses`, `trajectories`: its response and trajectory,
    by index in the batch; a response is one call's sample, and those of a trajectory are numbered in the order of
    its calls. `scale`: factor of its loss; the loss of a batch is the plain sum of scale x loss. `rewards`: given
    after this token. `weights`: [T, 3], of policy loss, cross-entropy and reference KL. `group`: index of its
    group within the batch. `reference`: log-probabilities under the frozen reference. `environment`: index among
    those of the batch. `values`: what the critic expected before the batch, `returns`: what it is trained
    towards. `proximal`: log-probabilities before the batch's first optimizer step. None where there is none.
    """

    ids: NDArray[np.int32]
    at: Ints
    behaviour: Float32s
    temperatures: Float32s
    advantages: Float32s
    versions: Ints
    responses: Ints
    trajectories: Ints
    rewards: Float32s
    weights: Float32s
    scale: Float32s
    group: int = 0
    environment: int = 0
    proximal: Float32s | None = None
    reference: Float32s | None = None
    values: Float32s | None = None
    returns: Float32s | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class LearnerBatch:
    """All that any rank must know of a batch.

    `sequence`: of its plan. `group_sizes`: by index of the group, how many trajectories the plan has, untrained ones
    included. `environments`: names, by index; none: the plan names none.
    """

    examples: Sequence[Example]
    version: int
    seed: int
    group_sizes: tuple[int, ...]
    sequence: int = 0
    environments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """The examples that one optimizer step trains: whole groups. `index`: of the step within its batch, empty ones
    counted."""

    index: int
    examples: list[Example]
    trajectories: int


def mini_batches(batch: LearnerBatch, count: int, epochs: int) -> list[MiniBatch]:
    """The groups of a batch in `count` parts, `epochs` times, dealt again for each epoch by the seed of the plan.

    A part whose groups have nothing to train is omitted.
    """
    dice = np.random.default_rng(batch.seed)
    dealt: list[MiniBatch] = []
    for index in range(epochs * count):
        if index % count == 0:
            parts = np.array_split(dice.permutation(len(batch.group_sizes)), count)
        groups = set(parts[index % count].tolist())
        examples = [example for example in batch.examples if example.group in groups]
        if examples:
            dealt.append(MiniBatch(index, examples, sum(batch.group_sizes[group] for group in groups)))
    return dealt


def scaled(examples: Sequence[Example], norm: str, *, trajectories: int, loss_length: int) -> list[Example]:
    """The same examples with the scale that `norm` (of `algorithms.norms.NORMS`) gives to each of their tokens, all of them
    together being what one optimizer step trains. trajectories: of the batch, untrained ones included."""
    if not examples:
        return []
    per_token = scales(
        norm,
        column(examples, "responses"),
        column(examples, "trajectories"),
        n_trajectories=trajectories,
        loss_length=loss_length,
    )
    return with_column(examples, "scale", per_token)


def column(examples: Sequence[Example], name: str) -> NDArray[Any]:  # Any: of the dtype of that column
    """A vector of all examples, one after the other: over the trained tokens of the batch."""
    return np.concatenate([getattr(example, name) for example in examples])


def with_column(examples: Sequence[Example], name: str, flat: NDArray[Any]) -> list[Example]:  # Any: as above
    """The same examples with another column of floats, the inverse of `column`."""
    ends = np.cumsum([len(example.at) for example in examples])
    parts = np.split(flat.astype(np.float32), ends[:-1]) if examples else []
    changes: list[dict[str, Any]] = [{name: part} for part in parts]  # Any: fields of Example
    return [replace(example, **change) for example, change in zip(examples, changes, strict=True)]


def by_trajectory(examples: Sequence[Example]) -> Iterator[tuple[int, Ints]]:
    """Each trajectory with the places of its trained tokens in a `column`, in the order in which they were sampled.

    A trajectory has several examples where its calls do not extend each other; its calls are in the order of the plan.
    """
    order = np.lexsort((column(examples, "at"), column(examples, "responses")))
    trajectories = column(examples, "trajectories")[order]
    starts = np.flatnonzero(np.diff(trajectories, prepend=-1))
    for start, tokens in zip(starts, np.split(order, starts[1:]), strict=True):
        yield int(trajectories[start]), tokens

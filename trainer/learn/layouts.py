"""How examples are laid into the input of a model: padded rows of bounded size.

Invariant: every example is in exactly one micro-batch, whole; the packing is a function of the examples, so a replay
repeats it. What comes out is flat again: where in the hidden states each trained token is predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainer.learn.examples import Example

PAD_ID = 0  # stands behind its row, where causal attention lets nothing see it; never trained


@dataclass(frozen=True, slots=True)
class TrainedTokens:
    """Flat vectors [T] over the trained tokens of a micro-batch (`weights`: [T, 3]); see `Example`.

    `at`: index of the position that predicts the token in the hidden states flattened to [rows * n, width].
    `responses` is dense, 0 ... R - 1, within the micro-batch.
    """

    at: Tensor
    ids: Tensor
    behaviour: Tensor
    temperatures: Tensor
    advantages: Tensor
    versions: Tensor
    responses: Tensor
    trajectories: Tensor
    weights: Tensor
    scale: Tensor
    proximal: Tensor | None = None
    reference: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None

    def __len__(self) -> int:
        return len(self.at)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """`ids`, `positions`: [rows, n], padded on the right. `attention`: what the layout's attention needs; None: causal."""

    ids: Tensor
    positions: Tensor
    tokens: TrainedTokens
    attention: object | None = None


def pack(examples: Sequence[Example], tokens_max: int) -> list[list[Example]]:
    """Examples by length, cut so that longest x count <= tokens_max; a longer one stands alone."""
    packed: list[list[Example]] = []
    for example in sorted(examples, key=len):
        if packed and len(example) * (len(packed[-1]) + 1) <= tokens_max:
            packed[-1].append(example)
        else:
            packed.append([example])
    return packed


def padded_rows(examples: Sequence[Example], device: torch.device) -> MicroBatch:
    """One row per example."""
    n = max(map(len, examples))
    ids = np.full((len(examples), n), PAD_ID, dtype=np.int64)
    for line, example in zip(ids, examples, strict=True):
        line[: len(example)] = example.ids
    at = np.concatenate([row * n + example.at - 1 for row, example in enumerate(examples)])
    return MicroBatch(
        ids=torch.from_numpy(ids).to(device),
        positions=torch.arange(n, device=device).expand(len(examples), n),
        tokens=trained_tokens(examples, at, device),
    )


def trained_tokens(examples: Sequence[Example], at: np.ndarray, device: torch.device) -> TrainedTokens:
    """The vectors of all examples one after the other. `at`: the places of their predictions, in that order."""

    def column(name: str) -> Tensor:
        return torch.from_numpy(np.concatenate([getattr(example, name) for example in examples])).to(device)

    def column_if_any(name: str) -> Tensor | None:
        return None if getattr(examples[0], name) is None else column(name)

    return TrainedTokens(
        at=torch.from_numpy(at).to(device),
        ids=torch.from_numpy(np.concatenate([each.ids[each.at].astype(np.int64) for each in examples])).to(device),
        behaviour=column("behaviour"),
        temperatures=column("temperatures"),
        advantages=column("advantages"),
        versions=column("versions"),
        responses=torch.unique(column("responses"), return_inverse=True)[1],
        trajectories=column("trajectories"),
        weights=column("weights"),
        scale=column("scale"),
        proximal=column_if_any("proximal"),
        reference=column_if_any("reference"),
        values=column_if_any("values"),
        returns=column_if_any("returns"),
    )

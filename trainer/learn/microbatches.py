"""Rows packed into micro-batches of bounded padded size, and as tensors.

Invariant: every row is in exactly one micro-batch; the packing is a function of the rows, so a replay repeats it.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from datapool.batch.sequences import TrainingRow

PAD_ID = 0  # never attended to, never trained

DTYPES = {"B": torch.uint8, "i": torch.int32, "q": torch.int64, "f": torch.float32}
"""What an array's items are to torch."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """All tensors [rows, n], n the longest row; padded on the right."""

    ids: Tensor
    attention: Tensor
    mask: Tensor
    behaviour: Tensor
    temperatures: Tensor
    versions: Tensor
    advantages: Tensor


def pack(rows: Sequence[TrainingRow], tokens_max: int) -> list[list[TrainingRow]]:
    """Rows by length, cut so that longest x count <= tokens_max; a longer row stands alone."""
    packed: list[list[TrainingRow]] = []
    for row in sorted(rows, key=len):
        if packed and len(row) * (len(packed[-1]) + 1) <= tokens_max:
            packed[-1].append(row)
        else:
            packed.append([row])
    return packed


def as_tensors(rows: Sequence[TrainingRow], advantages: Sequence[float], device: torch.device) -> MicroBatch:
    """`advantages` by `TrainingRow.trajectory`, for rows that have none of their own."""
    n = max(map(len, rows))
    lengths = torch.tensor([len(row) for row in rows])
    return MicroBatch(
        ids=_padded([row.ids for row in rows], n, PAD_ID, torch.int64).to(device),
        attention=(torch.arange(n)[None, :] < lengths[:, None]).long().to(device),
        mask=_padded([row.mask for row in rows], n, 0, torch.float32).to(device),
        behaviour=_padded([row.logprobs for row in rows], n, 0.0, torch.float32).to(device),
        temperatures=_padded([row.temperatures for row in rows], n, 1.0, torch.float32).to(device),
        versions=_padded([row.versions for row in rows], n, -1, torch.int64).to(device),
        advantages=_padded([_advantages(row, advantages) for row in rows], n, 0.0, torch.float32).to(device),
    )


def _advantages(row: TrainingRow, of_trajectories: Sequence[float]) -> "array[Any]":  # Any: of floats
    if row.advantages is not None:
        return row.advantages
    return array("f", [of_trajectories[row.trajectory]]) * len(row)


def _padded(rows: Sequence["array[Any] | bytearray"], n: int, fill: float, dtype: torch.dtype) -> Tensor:
    """[rows, n]; the arrays are read where they lie."""
    out = torch.full((len(rows), n), fill, dtype=dtype)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = torch.frombuffer(row, dtype=DTYPES[row.typecode if isinstance(row, array) else "B"])
    return out

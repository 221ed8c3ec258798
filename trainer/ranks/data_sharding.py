"""Divides one batch among several ranks: the examples of each, and the combination of all results.

Invariant: a deal is a function of the examples alone, so every rank knows the
shares of all others without communication, and a replay deals the same again.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from claw_r1.trainer.learn.examples import Example

if TYPE_CHECKING:
    from claw_r1.trainer.learn.layouts import Layout, MicroBatch

T = TypeVar("T")


class Share(NamedTuple):
    """The share of one rank."""

    rank: int
    ranks: int


ALL = Share(0, 1)


def share_of_this_rank() -> Share:
    """After the ranks met."""
    return Share(dist.get_rank(), dist.get_world_size())


def over_ranks(value: T) -> list[T]:
    """The value of each rank, by rank; on all of them."""
    parts: list[Any] = [value] * dist.get_world_size()  # Any: torch's signature
    if len(parts) > 1:
        dist.all_gather_object(parts, value)
    return parts


def dealt(units: Sequence[Sequence[Example]], costs: Sequence[int], ranks: int) -> list[list[Example]]:
    """The examples of each rank: units in falling order of cost, each to whoever has least so far.

    At most 4/3 of the best possible for the rank with most (Graham 1969, longest processing time first).
    """
    loads = [(0, rank) for rank in range(ranks)]
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for index in sorted(range(len(units)), key=lambda index: -costs[index]):
        load, rank = heapq.heappop(loads)
        shares[rank].append(index)
        heapq.heappush(loads, (load + costs[index], rank))
    return [[example for index in sorted(share) for example in units[index]] for share in shares]


def nothing() -> Example:
    """Returns the example that a rank computes where the others have one micro-batch more: two tokens, of which one of
    scale 0 is trained."""
    zero, one = np.zeros(1, dtype=np.float32), np.ones(1, dtype=np.float32)
    index = np.zeros(1, dtype=np.int64)
    return Example(
        ids=np.zeros(2, dtype=np.int32),
        at=index + 1,
        behaviour=zero,
        temperatures=one,
        advantages=zero,
        versions=index - 1,
        responses=index,
        trajectories=index,
        rewards=zero,
        weights=np.zeros((1, 3), dtype=np.float32),
        scale=zero,
        reference=zero,
        proximal=zero,
        values=zero,
        returns=zero,
    )


def per_token(
    layout: "Layout",
    examples: Sequence[Example],
    device: torch.device,
    function: Callable[["MicroBatch"], Tensor],
) -> NDArray[np.float32]:
    """[T] float32, as a `column` of the examples: what `function` gives for each trained token, without gradient.

    `layout`: of the same examples; each rank computes its share, and all get the numbers of all.
    """
    indices = {id(example): index for index, example in enumerate(examples)}
    numbers: dict[int, NDArray[np.float32]] = {}
    with torch.no_grad():
        for count, (part, batch) in enumerate(zip(layout.parts, layout.micro_batches(device), strict=True)):
            values = function(batch).float().cpu().numpy()
            ends = np.cumsum([len(example.at) for example in part])
            if count < layout.own:
                pieces = zip(part, np.split(values, ends[:-1]), strict=True)
                numbers |= {indices[id(example)]: piece for example, piece in pieces}
    whole = {index: piece for part in over_ranks(numbers) for index, piece in part.items()}
    return np.concatenate([whole[index] for index in range(len(examples))]) if examples else np.zeros(0, np.float32)

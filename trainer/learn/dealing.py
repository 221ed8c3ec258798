"""Which rank trains which examples of a step.

Invariant: a function of the examples alone, so every rank knows the share of every other without asking, and a replay
deals the same again.
"""

import heapq
from collections.abc import Sequence

import numpy as np

from trainer.learn.examples import Example
from trainer.learn.layouts import pack


def shares(costs: Sequence[int], ranks: int) -> list[list[int]]:
    """Indices of `costs` for each rank, in their order: the longest first, each to whoever has least so far.

    At most 4/3 of the best possible for the rank with most (Graham 1969, longest processing time first).
    """
    loads = [(0, rank) for rank in range(ranks)]
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        load, rank = heapq.heappop(loads)
        dealt[rank].append(index)
        heapq.heappush(loads, (load + costs[index], rank))
    return [sorted(share) for share in dealt]


def micro_batches(examples: Sequence[Example], tokens_max: int, *, rank: int, ranks: int) -> list[list[Example]]:
    """The share of `rank`, packed. Equally many for all: a stage of ZeRO that cuts gradients or weights meets in each.

    Empty lists fill up; see `nothing`.
    """
    dealt = [[examples[index] for index in share] for share in shares(list(map(len, examples)), ranks)]
    packed = [pack(share, tokens_max) for share in dealt]
    own, most = packed[rank], max(map(len, packed))
    return [*own, *([[]] * (most - len(own)))]


def nothing() -> Example:
    """What a rank computes where the others have something to train: two tokens of scale 0."""
    one = np.zeros(1, dtype=np.float32)
    return Example(
        ids=np.zeros(2, dtype=np.int32),
        at=np.ones(1, dtype=np.int64),
        behaviour=one,
        temperatures=np.ones(1, dtype=np.float32),
        advantages=one,
        versions=np.full(1, -1, dtype=np.int64),
        responses=np.zeros(1, dtype=np.int64),
        trajectories=np.zeros(1, dtype=np.int64),
        rewards=one,
        weights=np.zeros((1, 3), dtype=np.float32),
        scale=one,
    )

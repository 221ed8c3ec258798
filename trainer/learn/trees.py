"""Many examples as one row: a trie over their token ids, in which a common prefix is stored once.

Invariant: a token's ancestors in the trie are exactly the ids before it in each example that goes through it, so a token
that sees its ancestors and itself, at the position of its depth, sees the same as in a row of its own. Examples
are taken depth-first. Then the tokens of each are those it shares with the previous one, and a *branch* of its own,
appended to the row: everything below a token follows it directly. Ids alone decide on sharing, so examples of
several groups share common parts (a system prompt, say).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from claw_r1.trainer.learn.examples import Example, Ints


class Block(NamedTuple):
    """Tokens [first, last) of the row, all of which see all of the keys [keys_first, keys_last)."""

    first: int
    last: int
    keys_first: int
    keys_last: int


@dataclass(frozen=True, slots=True)
class Trie:
    """A row of n tokens, of `examples` depth-first.

    `at`: per example, where in the row each of its trained tokens is predicted. `branches`: [first, last), in each of
    which a token sees those before it and itself. `blocks`: what branches see besides, keys of the branches they fork
    from. `ends` [n]: the descendants of token k, and k itself, are [k, ends[k]).
    """

    examples: Sequence[Example]
    ids: NDArray[np.int32]
    positions: Ints
    at: Sequence[Ints]
    branches: Sequence[tuple[int, int]]
    blocks: Sequence[Block]
    ends: Ints


class _Piece(NamedTuple):
    """Depths [first, last) of the present path, which stand in the row at depth + shift."""

    first: int
    last: int
    shift: int


def in_order(examples: Sequence[Example]) -> tuple[list[Example], Ints]:
    """The examples depth-first, and how many ids each shares with the one before it.

    Where they fork, the branch of most examples goes first and stays one with what it forks from. So a path has at most
    log2(examples) + 1 pieces. Bytes of big-endian numbers compare as the numbers do: comparing two examples is one memcmp.
    """
    keys = [example.ids.astype(">u4").tobytes() for example in examples]
    by_ids = [examples[index] for index in sorted(range(len(examples)), key=keys.__getitem__)]
    ordered: list[Example] = []
    forks = [(0, len(by_ids))] if by_ids else []
    shared = _all_shared(by_ids)
    while forks:
        first, last = forks.pop()
        within = shared[first + 1 : last]
        if len(within) == 0:
            ordered.append(by_ids[first])
        else:
            cuts = first + 1 + np.flatnonzero(within == within.min())
            branches = pairwise([first, *cuts.tolist(), last])
            forks += sorted(branches, key=lambda of: (of[1] - of[0], len(by_ids[of[0]]), -of[0]))  # the last is next
    return ordered, _all_shared(ordered)


def _all_shared(examples: Sequence[Example]) -> Ints:
    shared = [_shared(before.ids, after.ids) for before, after in pairwise(examples)]
    return np.array([0, *shared][: len(examples)], dtype=np.int64)


def _shared(a: NDArray[np.int32], b: NDArray[np.int32]) -> int:
    n = min(len(a), len(b))
    differing = a[:n] != b[:n]
    return int(differing.argmax()) if differing.any() else n


def partition_examples(lengths: Ints, shared: Ints, tokens_max: int) -> list[tuple[int, int]]:
    """[first, last) of the parts of examples `in_order` that are computed together, none of more than tokens_max tokens.

    A part repeats the tokens shared by its first example and the previous one. Of all partitions, this one
    repeats least, and of those has the fewest parts. An example longer than tokens_max is alone.
    """
    n = len(lengths)
    own = np.concatenate([[0], np.cumsum(lengths - shared)])
    # Of the best parts of the first j examples, times n + 1, plus their number.
    repeated = np.zeros(n + 1, dtype=np.int64)
    begins = np.zeros(n + 1, dtype=np.int64)
    for last in range(1, n + 1):
        fits = own[last] - own[:last] + shared[:last] <= tokens_max
        first = int(fits.argmax()) if fits.any() else last - 1  # a part that begins later is never larger
        costs = repeated[first:last] + shared[first:last] * (n + 1) + 1
        begins[last] = first + int(costs.argmin())
        repeated[last] = costs.min()
    parts: list[tuple[int, int]] = []
    while n:
        parts.append((int(begins[n]), n))
        n = int(begins[n])
    return parts[::-1]


def computed(lengths: Ints, shared: Ints, parts: Sequence[tuple[int, int]]) -> int:
    """Tokens that go through the model."""
    return int((lengths - shared).sum() + sum(shared[first] for first, _ in parts))


def trie(examples: Sequence[Example]) -> Trie:
    """The row of one part, its examples `in_order`."""
    path: list[_Piece] = []
    before: NDArray[np.int32] = np.empty(0, dtype=np.int32)
    fresh, positions, at, ends = [], [], [], []
    branches: list[tuple[int, int]] = []
    blocks: dict[tuple[int, int], Block] = {}
    size = 0
    for example in examples:
        depth, n = _shared(before, example.ids), len(example)
        before = example.ids
        path, left = _forked(path, depth)
        ends += [(first, last, size) for first, last in left]
        if depth < n:
            last = size + n - depth
            for piece in path:
                keys = (piece.first + piece.shift, piece.last + piece.shift)
                blocks[keys] = Block(blocks[keys].first if keys in blocks else size, last, *keys)
            path.append(_Piece(depth, n, size - depth))
            branches.append((size, last))
            fresh.append(example.ids[depth:])
            positions.append(np.arange(depth, n))
            size = last
        at.append(_places(path, example.at - 1))
    ends += [(first, last, size) for first, last in _forked(path, 0)[1]]
    return Trie(
        examples=examples,
        ids=np.concatenate(fresh),
        positions=np.concatenate(positions),
        at=at,
        branches=branches,
        blocks=list(blocks.values()),
        ends=_filled(ends, size),
    )


def _forked(path: Sequence[_Piece], depth: int) -> tuple[list[_Piece], list[tuple[int, int]]]:
    """The path up to a depth, and which tokens of the row it leaves."""
    kept = [piece._replace(last=min(piece.last, depth)) for piece in path if piece.first < depth]
    left = [(max(piece.first, depth) + piece.shift, piece.last + piece.shift) for piece in path if piece.last > depth]
    return kept, left


def _places(path: Sequence[_Piece], depths: Ints) -> Ints:
    firsts = np.array([piece.first for piece in path])
    shifts = np.array([piece.shift for piece in path])
    places: Ints = depths + shifts[np.searchsorted(firsts, depths, side="right") - 1]
    return places


def _filled(spans: Sequence[tuple[int, int, int]], size: int) -> Ints:
    values = np.empty(size, dtype=np.int64)
    for first, last, value in spans:
        values[first:last] = value
    return values

"""The layout of examples in the input of a model: padded rows, or tries that hold shared parts once.

Invariant: every example is in exactly one micro-batch, whole; the packing is a function of the examples, so a replay
repeats it. The result is flat again: the place in the hidden states at which each trained token is predicted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor

from claw_r1.trainer.learn.attention import LayoutWish, TrieAttention
from claw_r1.trainer.learn.examples import Example
from claw_r1.trainer.learn.trees import computed, in_order, partition_examples, trie
from claw_r1.trainer.ranks.data_sharding import ALL, Share, dealt, nothing

TREE_SAVES_MIN = 0.1
"""Share of the tokens of padded rows that a tree must save to be taken by `auto`."""
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
    environments: Tensor
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
    """`ids`, `positions`: [rows, n], padded on the right. `attention`: what the layout's
    attention needs; None: causal."""

    ids: Tensor
    positions: Tensor
    tokens: TrainedTokens
    attention: TrieAttention | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """The examples that are computed together. `tokens_computed`: that go through the model, padding included, on all
    ranks.

    `own`: how many parts this is about; those behind them only keep step with the other ranks, where a stage of ZeRO
    that cuts gradients or weights meets in each micro-batch.
    """

    parts: Sequence[Sequence[Example]]
    as_tree: bool
    tokens_computed: int
    own: int = 0

    def micro_batches(self, device: torch.device) -> Iterator[MicroBatch]:
        """`parts` as inputs of a model, each made on demand."""
        for part in self.parts:
            yield packed_tree(part, device) if self.as_tree else padded_rows(part, device)


def lay_out(examples: Sequence[Example], tokens_max: int, wish: LayoutWish, share: Share = ALL) -> Layout:
    """The share of the examples, in parts of at most tokens_max tokens, a longer one alone. auto: a tree where it saves
    enough. A tree is dealt by groups, so that shared parts are computed once."""
    whole = _laid_out(examples, tokens_max, wish)
    if share.ranks == 1 or not examples:
        return replace(whole, own=len(whole.parts))
    units = [[example] for example in examples]
    if whole.as_tree and len({example.group for example in examples}) >= share.ranks:
        group = attrgetter("group")
        units = [list(unit) for _, unit in groupby(sorted(examples, key=group), group)]
    costs = [_laid_out(unit, tokens_max, "tree" if whole.as_tree else "rows").tokens_computed for unit in units]
    layouts = [
        _laid_out(each, tokens_max, "tree" if whole.as_tree else "rows") for each in dealt(units, costs, share.ranks)
    ]
    own = layouts[share.rank].parts
    idle = max(len(layout.parts) for layout in layouts) - len(own)
    return Layout(
        [*own, *([[nothing()]] * idle)], whole.as_tree, sum(layout.tokens_computed for layout in layouts), len(own)
    )


def _laid_out(examples: Sequence[Example], tokens_max: int, wish: LayoutWish) -> Layout:
    rows = pack(examples, tokens_max)
    as_rows = Layout(rows, as_tree=False, tokens_computed=sum(len(part) * max(map(len, part)) for part in rows))
    if wish == "rows" or not examples:
        return as_rows
    ordered, shared = in_order(examples)
    lengths = np.array([len(example) for example in ordered])
    parts = partition_examples(lengths, shared, tokens_max)
    tokens = computed(lengths, shared, parts)
    if wish == "auto" and tokens > (1 - TREE_SAVES_MIN) * as_rows.tokens_computed:
        return as_rows
    return Layout([ordered[first:last] for first, last in parts], as_tree=True, tokens_computed=tokens)


def pack(examples: Sequence[Example], tokens_max: int) -> list[list[Example]]:
    """Examples by length, cut so that longest x count <= tokens_max; a longer one is alone."""
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


def packed_tree(examples: Sequence[Example], device: torch.device) -> MicroBatch:
    """One row for all examples, which are `in_order`."""
    row = trie(examples)
    return MicroBatch(
        ids=torch.from_numpy(row.ids.astype(np.int64))[None].to(device),
        positions=torch.from_numpy(row.positions)[None].to(device),
        tokens=trained_tokens(examples, np.concatenate(row.at), device),
        attention=TrieAttention.of(row, device),
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
        environments=torch.from_numpy(
            np.repeat([each.environment for each in examples], [len(each.at) for each in examples])
        ).to(device),
        weights=column("weights"),
        scale=column("scale"),
        proximal=column_if_any("proximal"),
        reference=column_if_any("reference"),
        values=column_if_any("values"),
        returns=column_if_any("returns"),
    )

"""Packing examples and making tensors of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.trainer.learn.layouts import lay_out, pack, padded_rows
from tests.trainer.examples import example
from tests.trainer.learn.forests import forest


def of_length(length, **changes):
    """One prompt token, then `length - 1` trained ones."""
    return example([1], range(2, length + 1), **changes)


@given(st.lists(st.integers(2, 40), min_size=1, max_size=20), st.integers(1, 120))
def test_every_example_once_and_within_the_bound(lengths, tokens_max):
    """None is lost or doubled, and only one that is too long by itself exceeds the bound."""
    made = [of_length(length) for length in lengths]
    packed = pack(made, tokens_max)
    assert sorted(id(one) for part in packed for one in part) == sorted(map(id, made))
    assert all(len(part) == 1 or max(map(len, part)) * len(part) <= tokens_max for part in packed)


def test_tensors_of_unequal_examples():
    """Padding stands on the right; each trained token points to the state before it, and has its own numbers."""
    parts = [of_length(3, advantage=-1.0, temperature=0.5, index=7), of_length(5, advantage=2.0, version=3, index=9)]
    batch = padded_rows(parts, torch.device("cpu"))
    assert batch.ids.tolist() == [[1, 2, 3, 0, 0], [1, 2, 3, 4, 5]]
    tokens = batch.tokens
    assert tokens.at.tolist() == [0, 1, 5, 6, 7, 8]
    assert tokens.ids.tolist() == [2, 3, 2, 3, 4, 5]
    assert tokens.advantages.tolist() == [-1, -1, 2, 2, 2, 2]
    assert tokens.temperatures.tolist() == [0.5, 0.5, 1, 1, 1, 1]
    assert tokens.versions.tolist() == [0, 0, 3, 3, 3, 3]
    assert tokens.responses.tolist() == [0, 0, 1, 1, 1, 1]
    assert tokens.trajectories.tolist() == [7, 7, 9, 9, 9, 9]


@pytest.mark.parametrize("wish", ["auto", "rows", "tree"])
@pytest.mark.parametrize("tokens_max", [1, 50, 10_000])
def test_a_layout_holds_every_trained_token_once(wish, tokens_max):
    """Whatever the layout and the budget: no example is lost, doubled or split, and the count is that of the tensors."""
    examples = forest(4)
    layout = lay_out(examples, tokens_max, wish)
    assert sorted(id(each) for part in layout.parts for each in part) == sorted(map(id, examples))
    batches = list(layout.micro_batches(torch.device("cpu")))
    assert layout.tokens_computed == sum(batch.ids.numel() for batch in batches)
    trained = sorted(scale for batch in batches for scale in batch.tokens.advantages.tolist())
    assert trained == sorted(scale for each in examples for scale in each.advantages.tolist())


def test_auto_takes_a_tree_where_it_saves_a_tenth():
    """Long common prompts are a tree; where nearly nothing is common, rows are."""
    alike = [example([1] * 10, [index, 2], index=index) for index in range(4)]
    apart = [example([index] * 10, [index, 2], index=index) for index in range(4)]
    assert lay_out(alike, 1000, "auto").as_tree
    assert not lay_out(apart, 1000, "auto").as_tree
    assert lay_out(apart, 1000, "tree").as_tree
    assert lay_out([], 1000, "auto").parts == []

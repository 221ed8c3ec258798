"""A trie shares what examples begin with, and its row says who sees whom."""

import time
from dataclasses import replace

import numpy as np
import pytest

from claw_r1.trainer.learn.trees import computed, in_order, partition_examples, trie
from tests.trainer.examples import example
from tests.trainer.learn.forests import forest


def visible(row):
    """[n, n], by branches and blocks."""
    sees = np.zeros((len(row.ids), len(row.ids)), dtype=int)
    for first, last in row.branches:
        sees[first:last, first:last] += np.tri(last - first, dtype=int)
    for block in row.blocks:
        sees[block.first : block.last, block.keys_first : block.keys_last] += 1
    return sees


@pytest.mark.parametrize("seed", range(20))
def test_each_prediction_sees_the_ids_before_it(seed):
    """From the place of each trained token, the visible ids in the order of their positions are those of its example."""
    ordered, shared = in_order(forest(seed))
    row = trie(ordered)
    sees = visible(row)
    assert len(row.ids) == sum(map(len, ordered)) - shared.sum()
    for each, places in zip(ordered, row.at, strict=True):
        for at, place in zip(each.at, places, strict=True):
            seen = np.flatnonzero(sees[place])
            assert row.ids[seen][np.argsort(row.positions[seen])].tolist() == each.ids[:at].tolist()


@pytest.mark.parametrize("seed", range(20))
def test_ends_say_the_same(seed):
    """Token k is seen by [k, ends[k]) and by nobody else, and nothing is seen twice."""
    row = trie(in_order(forest(seed))[0])
    numbers = np.arange(len(row.ids))
    expected = (numbers[None] <= numbers[:, None]) & (numbers[:, None] < row.ends[None])
    assert (visible(row) == expected).all()


def test_what_is_shared_stands_once():
    """Two forks of a prompt, one copy, one stranger: the prompt once, the copy not at all."""
    prompt = [5, 6, 7]
    examples = [
        example(prompt, [1, 2], index=0),
        example([9], [9], index=1),
        example(prompt, [1, 3], index=2),
        example(prompt, [1, 2], index=3),
    ]
    row = trie(in_order(examples)[0])
    assert row.ids.tolist() == [5, 6, 7, 1, 2, 3, 9, 9]
    assert row.positions.tolist() == [0, 1, 2, 3, 4, 4, 0, 1]
    assert [places.tolist() for places in row.at] == [[2, 3], [2, 3], [2, 3], [6]]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("tokens_max", [1, 30, 60, 10_000])
def test_a_cut_repeats_a_path_and_splits_no_example(seed, tokens_max):
    """Parts are all examples in order, each within the budget or a single example; counted tokens are those of the rows."""
    ordered, shared = in_order(forest(seed))
    lengths = np.array([len(each) for each in ordered])
    parts = partition_examples(lengths, shared, tokens_max)
    assert [index for part in parts for index in range(*part)] == list(range(len(ordered)))
    rows = [trie(ordered[first:last]) for first, last in parts]
    assert all(len(row.ids) <= tokens_max or len(row.examples) == 1 for row in rows)
    assert computed(lengths, shared, parts) == sum(len(row.ids) for row in rows)


def test_a_cut_goes_where_little_is_shared():
    """Two groups that fit one by one are not mixed, though the first leaves room."""
    groups = [[example([group] * 50, [member, 7], index=member) for member in (1, 2, 3)] for group in (4, 5)]
    ordered, shared = in_order([each for group in groups for each in group])
    lengths = np.array([len(each) for each in ordered])
    assert partition_examples(lengths, shared, 57) == [(0, 3), (3, 6)]
    assert partition_examples(lengths, shared, 62) == [(0, 3), (3, 6)]
    assert partition_examples(lengths, shared, 112) == [(0, 6)]


def test_the_row_does_not_depend_on_the_order_of_the_batch():
    """Ids decide where a token stands, so a replay of the same rows makes the same one."""
    examples = forest(3)
    assert trie(in_order(examples)[0]).ids.tolist() == trie(in_order(examples[::-1])[0]).ids.tolist()


def test_131_thousand_tokens_take_well_under_a_second():
    """Calls with a long common front: no walk over tokens in Python."""
    front = np.arange(18_700, dtype=np.int32)
    examples = [
        replace(example([1], [1]), ids=np.concatenate([front[: 18_000 + 100 * call], np.arange(50, dtype=np.int32)]))
        for call in range(7)
    ]
    began = time.process_time()
    row = trie(in_order(examples)[0])
    assert time.process_time() - began < 0.2
    assert len(row.ids) == 18_600 + 7 * 50

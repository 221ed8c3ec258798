"""Packing rows and making tensors of them."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from datapool.batch.sequences import CallTokens, rows
from schemas.arrays import pack_ids
from trainer.learn.microbatches import as_tensors, pack


def row(length, trajectory=0):
    """One prompt token, then `length - 1` trained ones."""
    n = length - 1
    return rows([CallTokens("c", pack_ids([1]), pack_ids(range(2, n + 2)), [-0.5] * n, [3] * n, 0.7)], trajectory)[0]


@given(st.lists(st.integers(2, 40), min_size=1, max_size=20), st.integers(1, 120))
def test_every_row_once_and_within_the_bound(lengths, tokens_max):
    """No row is lost or doubled, and only a row that is too long by itself exceeds the bound."""
    made = [row(length) for length in lengths]
    packed = pack(made, tokens_max)
    assert sorted(id(one) for part in packed for one in part) == sorted(map(id, made))
    assert all(len(part) == 1 or max(map(len, part)) * len(part) <= tokens_max for part in packed)


def test_tensors_of_unequal_rows():
    """Padding on the right is not attended to and not trained; each row has its trajectory's advantage."""
    batch = as_tensors([row(3, 1), row(5, 0)], [10.0, -10.0], torch.device("cpu"))
    assert batch.ids.tolist() == [[1, 2, 3, 0, 0], [1, 2, 3, 4, 5]]
    assert batch.attention.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.mask.tolist() == [[0, 1, 1, 0, 0], [0, 1, 1, 1, 1]]
    assert batch.advantages[:, 0].tolist() == [-10.0, 10.0]
    assert batch.versions.tolist() == [[-1, 3, 3, -1, -1], [-1, 3, 3, 3, 3]]
    assert batch.temperatures[0].tolist() == [1.0, torch.tensor(0.7).item(), torch.tensor(0.7).item(), 1.0, 1.0]

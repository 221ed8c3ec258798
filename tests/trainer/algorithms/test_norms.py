"""What a token weighs in the loss of its batch. Three trajectories: one of two calls, one of one, one that trains nothing."""

import numpy as np
import pytest

from claw_r1.trainer.algorithms.norms import NORMS, scales

SEQUENCES = np.array([5, 5, 5, 7, 9, 9])  # 3 tokens, 1, 2
TRAJECTORIES = np.array([0, 0, 0, 0, 1, 1])
COUNTS = {"n_trajectories": 3, "loss_length": 100}
VALUES = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0])


def loss(name, values=VALUES, sequences=SEQUENCES, trajectories=TRAJECTORIES):
    return float((scales(name, sequences, trajectories, **COUNTS) * values).sum())


def test_each_norm_by_hand():
    """22 / 6; mean of 2, 4, 6; (10 / 4 + 12 / 2) / 3; 22 / 300."""
    assert loss("token_mean") == pytest.approx(22 / 6)
    assert loss("sequence_mean") == pytest.approx(4.0)
    assert loss("trajectory_mean") == pytest.approx((2.5 + 6) / 3)
    assert loss("constant") == pytest.approx(22 / 300)


@pytest.mark.parametrize("name", NORMS)
def test_order_and_numbering_change_nothing(name):
    """A layout may permute the tokens and number responses as it likes."""
    order = np.array([4, 0, 3, 5, 1, 2])
    shuffled = loss(name, VALUES[order], SEQUENCES[order] * 3 + 1, TRAJECTORIES[order])
    assert shuffled == pytest.approx(loss(name))


@pytest.mark.parametrize("name", NORMS)
def test_a_batch_without_tokens_has_no_scales(name):
    """And raises nothing."""
    empty = np.array([], dtype=np.int64)
    assert scales(name, empty, empty, **COUNTS).shape == (0,)


def test_by_a_constant_a_token_weighs_the_same_in_every_batch():
    """Dr. GRPO; under the mean it weighs less where others say more."""
    short, long = np.zeros(1, dtype=np.int64), np.zeros(50, dtype=np.int64)
    assert scales("constant", short, short, **COUNTS)[0] == scales("constant", long, long, **COUNTS)[0]
    assert scales("token_mean", short, short, **COUNTS)[0] > scales("token_mean", long, long, **COUNTS)[0]

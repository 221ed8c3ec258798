"""GAE over trained tokens: reference numbers, context, turns, and where rewards stand."""

import numpy as np
import pytest

from claw_r1.trainer.algorithms.gae import gae, token_rewards, whitened

REWARDS, VALUES = [0.0, 0.0, 1.0], [0.5, 0.4, 0.8]


@pytest.mark.parametrize(
    ("gamma", "lam", "advantages"), [(1.0, 1.0, [0.5, 0.6, 0.2]), (0.99, 0.95, [0.441584, 0.580100, 0.2])]
)
def test_reference_numbers_with_context_between_or_not(gamma, lam, advantages):
    """A critic's value of a context token (9 here) reaches no advantage."""
    assert gae(REWARDS, VALUES, gamma=gamma, lam=lam) == pytest.approx(advantages, abs=1e-6)
    between = gae([0, 0, 0, 0, 1], [0.5, 9.0, 9.0, 0.4, 0.8], gamma=gamma, lam=lam, mask=[1, 0, 0, 1, 1])
    assert between[[0, 3, 4]] == pytest.approx(advantages, abs=1e-6)
    assert between[[1, 2]].tolist() == [0, 0]


def test_with_both_at_one_it_is_the_return_to_go_less_the_value():
    """For any rewards."""
    rewards, values = np.array([0.3, -1.0, 0.0, 2.0]), np.array([0.1, 0.2, 0.3, 0.4])
    to_go = np.cumsum(rewards[::-1])[::-1]
    assert gae(rewards, values, gamma=1.0, lam=1.0) == pytest.approx(to_go - values)


def test_a_turn_discount_counts_turns_and_not_tokens():
    """gamma 1 within a response, .5 from one to the next: two borders lie between the first token and the reward."""
    turns = [0, 0, 1, 1, 2]
    advantages = gae([0, 0, 0, 0, 1], [0.0] * 5, gamma=1.0, lam=1.0, turns=turns, turn_gamma=0.5)
    assert advantages.tolist() == [0.25, 0.25, 0.5, 0.5, 1.0]


def test_rewards_stand_at_the_last_trained_token_of_their_call():
    """None is lost: of a call without trained tokens (1, 5) it goes to the token before, of the first one (0) to the first."""
    turns = [2, 2, 3, 3, 4]
    rewards = {0: 100.0, 2: 1.0, 3: 2.0, 4: 4.0, 5: 8.0}
    assert token_rewards(rewards, turns).tolist() == [100, 1, 0, 2, 12]
    assert token_rewards({0: 1.0}, []).tolist() == []


def test_whitened_advantages_have_mean_0_and_deviation_1():
    """Over all tokens; a single one stays as it is."""
    white = whitened(np.array([1.0, 2.0, 3.0, 6.0]))
    assert white.mean() == pytest.approx(0)
    assert white.std() == pytest.approx(1)
    assert whitened(np.array([5.0])).tolist() == [5.0]

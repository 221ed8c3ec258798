"""Generalised advantage estimation over the trained tokens of one trajectory, in float64 on the CPU: a replay repeats it.

Context (prompts, tool output, masked responses) is no action of the policy: it has no value here and is skipped, so that
the token after a trained one is the next trained one, whatever stands between.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]


def gae(
    rewards: Sequence[float] | Float64s,
    values: Sequence[float] | Float64s,
    *,
    gamma: float,
    lam: float,
    turns: Sequence[int] | None = None,
    turn_gamma: float | None = None,
    mask: Sequence[int] | None = None,
) -> Float64s:
    """Advantages [T]; returns for the critic are advantages + values. arXiv 1506.02438, formula 16.

    d_t = r_t + g_t V_(t+1) - V_t and A_t = d_t + g_t lam A_(t+1), V and A after the last token 0. g_t is gamma within a
    response, and turn_gamma (None: gamma) from the last token of a response to the first of the next, where `turns` [T]
    (index of the call) changes. mask [T]: 0 marks context, which is skipped and gets 0; None: every token is trained.
    """
    advantages = np.zeros(len(values))
    after, value_after, turn_after = 0.0, 0.0, None
    for t in reversed(range(len(values))):
        if mask is not None and not mask[t]:
            continue
        turn = None if turns is None else turns[t]
        discount = gamma if turn_gamma is None or turn == turn_after else turn_gamma
        after = rewards[t] + discount * (value_after + lam * after) - values[t]
        advantages[t], value_after, turn_after = after, values[t], turn
    return advantages


def token_rewards(rewards: Mapping[int, float], turns: Sequence[int]) -> Float64s:
    """[T]: the reward of each call at its last trained token.

    rewards: by index of the call. turns [T]: index of the call of each trained token, rising. The reward of a call
    without trained tokens goes to the last trained token before it, or else to the first one: no reward is lost.
    """
    at_tokens = np.zeros(len(turns))
    if len(turns):
        for turn, reward in rewards.items():
            at_tokens[max(int(np.searchsorted(turns, turn, side="right")) - 1, 0)] += reward
    return at_tokens


def whitened(advantages: Float64s) -> Float64s:
    """(A - mean) / (std + 1e-8) over all trained tokens of a batch, as PPO's implementations do; [T] -> [T]."""
    if len(advantages) < 2:
        return advantages
    whitened_ones: Float64s = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    return whitened_ones

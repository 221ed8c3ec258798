"""Log-probabilities of given tokens, as the engine computed them: logits divided by the temperature of each call.

Only positions that predict a trained token reach the head, some at a time, and their logits are computed again in the
backward pass: with 152k ids, the logits of one position alone take 0.6 MB.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

LOGITS_MAX = 1 << 24
"""Logits of one part: 64 MB in float32."""


class TokenScores(NamedTuple):
    """Both [T], float32."""

    logprobs: Tensor
    entropy: Tensor
    """Of the distribution that the token was drawn from, nats."""


def score(
    head: Callable[[Tensor], Tensor],
    hidden: Tensor,
    ids: Tensor,
    temperatures: Tensor,
    *,
    vocabulary: int,
    entropy_gradient: bool = False,
) -> TokenScores:
    """hidden [T, width]: the states that predict `ids` [T]; temperatures [T] of the call that sampled each, > 0.

    Computed in float32 whatever the logits are. entropy_gradient: whether the entropy is differentiable.
    """
    size = max(16, LOGITS_MAX // vocabulary)
    parts = [
        checkpoint(_part, head, h, i, t, entropy_gradient, use_reentrant=False)
        for h, i, t in zip(hidden.split(size), ids.split(size), temperatures.split(size), strict=True)
    ]
    if not parts:
        nothing = hidden.sum(-1).float()
        return TokenScores(nothing, nothing)
    return TokenScores(torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]))


def _part(
    head: Callable[[Tensor], Tensor], hidden: Tensor, ids: Tensor, temperatures: Tensor, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    everywhere = torch.log_softmax(head(hidden).float() / temperatures[:, None], dim=-1)
    chosen = everywhere.gather(-1, ids[:, None]).squeeze(-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(everywhere.exp() * everywhere).sum(-1)
    return chosen, entropy

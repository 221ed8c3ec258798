"""Log-probabilities of given tokens, as the engine computed them: logits divided by the temperature of each call."""

from typing import NamedTuple

import torch
from torch import Tensor


class TokenScores(NamedTuple):
    """Both [rows, n]; entry t is about token t given the tokens before it; entry 0 is 0."""

    logprobs: Tensor
    entropy: Tensor
    """Of the distribution that the token was drawn from, nats; without gradient."""


def score(logits: Tensor, ids: Tensor, temperatures: Tensor) -> TokenScores:
    """logits [rows, n, vocabulary], ids [rows, n], temperatures [rows, n] of the call that sampled each token, > 0.

    Computed in float32 whatever the logits are. Positions that nobody sampled have temperature 1 and are masked later.
    """
    scaled = logits[:, :-1].float() / temperatures[:, 1:, None]
    everywhere = torch.log_softmax(scaled, dim=-1)
    chosen = everywhere.gather(-1, ids[:, 1:, None]).squeeze(-1)
    with torch.no_grad():
        entropy = -(everywhere.exp() * everywhere).sum(-1)
    return TokenScores(_from_second(chosen), _from_second(entropy))


def _from_second(values: Tensor) -> Tensor:
    return torch.nn.functional.pad(values, (1, 0))

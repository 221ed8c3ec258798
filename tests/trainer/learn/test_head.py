"""Scores of tokens: temperature, entropy, and that the parts make no difference."""

import math

import pytest
import torch

from trainer.learn import head
from trainer.learn.head import score


def scored(logits, ids, temperatures=None, **changes):
    """`score` with a head that passes its input on."""
    temperatures = torch.ones(len(ids)) if temperatures is None else torch.tensor(temperatures)
    return score(lambda hidden: hidden, logits, torch.tensor(ids), temperatures, vocabulary=logits.shape[-1], **changes)


def test_the_logprob_is_of_the_token_that_was_asked_about():
    """Log of its softmax."""
    logits = torch.log(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]))
    assert scored(logits, [1, 0]).logprobs.tolist() == pytest.approx([math.log(0.2), math.log(0.1)], abs=1e-6)


def test_logits_are_divided_by_the_temperature_of_the_token():
    """Each token has the temperature of its own call."""
    logprobs = scored(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), [0, 0], [0.5, 2.0]).logprobs
    assert logprobs.tolist() == pytest.approx([-math.log(1 + math.exp(-4)), -math.log(2)], abs=1e-6)


def test_entropy_of_a_uniform_distribution():
    """In nats, of the distribution after temperature, and without gradient unless asked for."""
    logits = torch.zeros(1, 8, requires_grad=True)
    scores = scored(logits, [0])
    assert scores.entropy[0].item() == pytest.approx(math.log(8), abs=1e-6)
    assert not scores.entropy.requires_grad
    assert scored(logits, [0], entropy_gradient=True).entropy.requires_grad


def test_half_precision_logits_are_scored_in_float32():
    """bf16 logits lose no more than bf16 already lost."""
    logits, ids = torch.randn(8, 50, dtype=torch.bfloat16), [3] * 8
    assert scored(logits, ids).logprobs.dtype == torch.float32
    torch.testing.assert_close(scored(logits, ids).logprobs, scored(logits.float(), ids).logprobs)


def test_parts_change_neither_scores_nor_gradients(monkeypatch):
    """200 tokens in parts of 16 against all of them at once, and against plain torch."""
    torch.manual_seed(0)
    layer, hidden = torch.nn.Linear(12, 40, bias=False), torch.randn(200, 12)
    ids, temperatures = torch.randint(0, 40, (200,)), torch.rand(200) + 0.5

    def outcome(scores):
        states = hidden.clone().requires_grad_()
        layer.weight.grad = None
        logprobs = scores(states)
        (logprobs * torch.arange(200)).sum().backward()
        return logprobs.detach(), states.grad, layer.weight.grad.clone()

    def plain(states):
        everywhere = (layer(states) / temperatures[:, None]).log_softmax(-1)
        return everywhere.gather(-1, ids[:, None])[:, 0]

    monkeypatch.setattr(head, "LOGITS_MAX", 40)
    chunked = outcome(lambda states: score(layer, states, ids, temperatures, vocabulary=40).logprobs)
    for mine, expected in zip(chunked, outcome(plain), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-6, atol=1e-3)

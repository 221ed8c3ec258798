"""Scores of tokens: temperature, entropy, and that the parts make no difference."""

import math

import pytest
import torch

from claw_r1.trainer.learn import logprobs
from claw_r1.trainer.learn.logprobs import LogitShape, score


def scored(logits, ids, temperatures=None, **changes):
    """`score` with a head that passes its input on."""
    temperatures = torch.ones(len(ids)) if temperatures is None else torch.tensor(temperatures)
    return score(logits, torch.eye(logits.shape[-1], dtype=logits.dtype), torch.tensor(ids), temperatures, **changes)


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


def outcome(function, hidden, layer):
    """Values of both scores, and gradients of a sum in which each of them weighs differently everywhere."""
    states = hidden.clone().requires_grad_()
    layer.zero_grad()
    logprobs, entropy = function(states)
    weights = torch.linspace(-1, 1, len(hidden))
    total = (logprobs * weights).sum()
    if entropy.requires_grad:
        total = total + (entropy * weights.flip(0)).sum()
    total.backward()
    gradients = [states.grad, *(parameter.grad.clone() for parameter in layer.parameters())]
    return [logprobs.detach(), entropy.detach(), *gradients]


@pytest.mark.parametrize("entropy_gradient", [False, True])
@pytest.mark.parametrize("shape", [LogitShape(), LogitShape(0.5), LogitShape(2.0, cap=3.0)])
def test_parts_are_equal_to_plain_torch(monkeypatch, shape, entropy_gradient):
    """200 tokens in parts of 16, with bias and temperatures: values and gradients within 1e-6, relative to the largest."""
    torch.manual_seed(0)
    layer, hidden = torch.nn.Linear(12, 40), torch.randn(200, 12)
    ids, temperatures = torch.randint(0, 40, (200,)), torch.rand(200) + 0.5

    def parts(states):
        return score(
            states, layer.weight, ids, temperatures, bias=layer.bias, shape=shape, entropy_gradient=entropy_gradient
        )

    def plain(states):
        everywhere = (shape(layer(states)) / temperatures[:, None]).log_softmax(-1)
        entropy = -(everywhere.exp() * everywhere).sum(-1)
        return everywhere.gather(-1, ids[:, None])[:, 0], entropy if entropy_gradient else entropy.detach()

    monkeypatch.setitem(logprobs.LOGITS_MAX, "cpu", 40)
    for ours, expected in zip(outcome(parts, hidden, layer), outcome(plain, hidden, layer), strict=True):
        assert float((ours - expected).abs().max() / expected.abs().max()) < 1e-6


def test_in_bf16_the_parts_of_the_weights_gradient_are_summed_in_float32(monkeypatch):
    """Many small parts round no worse than one pass."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(12, 40, bias=False).bfloat16()
    hidden, ids = torch.randn(4096, 12).bfloat16(), torch.randint(0, 40, (4096,))

    def gradient(size):
        monkeypatch.setitem(logprobs.LOGITS_MAX, "cpu", size)
        outcomes = outcome(lambda states: score(states, layer.weight, ids, torch.ones(4096)), hidden, layer)
        return outcomes[-1].float()

    assert float((gradient(40) - gradient(1 << 30)).norm() / gradient(1 << 30).norm()) < 5e-3


def test_nothing_to_score_is_no_error():
    """A part of a batch can have no trained token; its gradient is 0."""
    hidden, layer = torch.zeros(0, 12), torch.nn.Linear(12, 40, bias=False)
    ids, temperatures = torch.zeros(0, dtype=torch.int64), torch.ones(0)
    *scores, _, of_weight = outcome(lambda states: score(states, layer.weight, ids, temperatures), hidden, layer)
    assert [len(each) for each in scores] == [0, 0]
    assert not of_weight.any()

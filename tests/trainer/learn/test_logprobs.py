"""Scores of tokens: shift, temperature, entropy."""

import math

import pytest
import torch

from trainer.learn.logprobs import score


def test_entry_t_is_about_token_t():
    """Token t is scored by the logits before it; the first token has no score."""
    logits = torch.log(torch.tensor([[[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]]))
    scores = score(logits, torch.tensor([[2, 1, 0]]), torch.ones(1, 3))
    assert scores.logprobs[0].tolist() == pytest.approx([0.0, math.log(0.2), math.log(0.1)], abs=1e-6)


def test_logits_are_divided_by_the_temperature_of_the_token():
    """Each token has the temperature of its own call."""
    logits = torch.tensor([[[2.0, 0.0], [2.0, 0.0], [0.0, 0.0]]])
    scores = score(logits, torch.tensor([[0, 0, 0]]), torch.tensor([[1.0, 0.5, 2.0]]))
    expected = [0.0, -math.log(1 + math.exp(-4)), -math.log(1 + math.exp(-1))]
    assert scores.logprobs[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_entropy_of_a_uniform_distribution():
    """Entropy is in nats, of the distribution after temperature, and without gradient."""
    logits = torch.zeros(1, 2, 8, requires_grad=True)
    scores = score(logits, torch.zeros(1, 2, dtype=torch.long), torch.ones(1, 2))
    assert scores.entropy[0, 1].item() == pytest.approx(math.log(8), abs=1e-6)
    assert not scores.entropy.requires_grad


def test_half_precision_logits_are_scored_in_float32():
    """bf16 logits lose no more than bf16 already lost."""
    logits = torch.randn(2, 4, 50, dtype=torch.bfloat16)
    ids = torch.randint(0, 50, (2, 4))
    assert score(logits, ids, torch.ones(2, 4)).logprobs.dtype == torch.float32
    torch.testing.assert_close(
        score(logits, ids, torch.ones(2, 4)).logprobs, score(logits.float(), ids, torch.ones(2, 4)).logprobs
    )

"""Losses against reference values (formulas of the papers, equal to verl's functions)."""

import pytest
import torch

from trainer.learn.losses import LOSSES, bound, cross_entropy, ppo_clip, ppo_dual_clip

RATIOS = torch.tensor([[1.5, 1.1, 0.5], [0.5, 1.5, 4.0]])
ADVANTAGES = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])
CLIPS = {"clip_low": 0.2, "clip_high": 0.28}
BEHAVIOUR = torch.full((2, 3), -2.0)


def at_ratio(ratios):
    return BEHAVIOUR + ratios.log()


def test_ppo_clip_per_token():
    """-min(r A, clip(r, 0.8, 1.28) A): the upper bound binds for A > 0, the lower for A < 0."""
    losses = ppo_clip(at_ratio(RATIOS), BEHAVIOUR, ADVANTAGES, **CLIPS)
    assert losses.values.flatten().tolist() == pytest.approx([-1.28, -1.1, -0.5, 0.8, 1.5, 4.0], abs=1e-6)
    assert losses.values.mean().item() == pytest.approx(0.57, abs=1e-6)
    assert losses.clipped.float().mean().item() == pytest.approx(1 / 3, abs=1e-6)


def test_ppo_dual_clip_per_token():
    """A < 0 costs at most 3 |A|."""
    losses = ppo_dual_clip(at_ratio(RATIOS), BEHAVIOUR, ADVANTAGES, **CLIPS)
    assert losses.values.flatten().tolist() == pytest.approx([-1.28, -1.1, -0.5, 0.8, 1.5, 3.0], abs=1e-6)
    assert losses.values.mean().item() == pytest.approx(0.403333, abs=1e-6)


def test_gradient_is_zero_where_the_clip_binds():
    """Clipped tokens pull nothing; the others pull with r A over all tokens."""
    logprobs = at_ratio(RATIOS).requires_grad_()
    losses = ppo_dual_clip(logprobs, BEHAVIOUR, ADVANTAGES, **CLIPS)
    (losses.values.sum() / 6).backward()
    expected = [0, -0.183333, -0.083333, 0, 0.25, 0]
    assert logprobs.grad.flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_the_denominator_is_the_engine():
    """On policy the gradient of the loss is -A per token: the engine's logprob is a constant."""
    logprobs = BEHAVIOUR.clone().requires_grad_()
    bound("ppo_clip", **CLIPS)(logprobs, BEHAVIOUR, ADVANTAGES).values.sum().backward()
    assert torch.equal(logprobs.grad, -ADVANTAGES)


def test_a_hopeless_ratio_stays_finite():
    """Behaviour probability near 0: the loss is bounded, not infinite."""
    for name in LOSSES:
        values = bound(name, **CLIPS)(torch.tensor([0.0]), torch.tensor([-500.0]), torch.tensor([-1.0])).values
        assert torch.isfinite(values).all()


def test_cross_entropy_is_the_likelihood_of_what_is_trained():
    """-log pi per token times its weight; who sampled it and the clip bounds change nothing."""
    logprobs = torch.tensor([[-0.5, -2.0], [-1.0, -0.25]], requires_grad=True)
    losses = cross_entropy(logprobs, torch.full((2, 2), -9.0), torch.tensor([[1.0, 1.0], [0.0, 1.0]]), **CLIPS)
    assert torch.allclose(losses.values, torch.tensor([[0.5, 2.0], [0.0, 0.25]]))
    assert not losses.clipped.any()

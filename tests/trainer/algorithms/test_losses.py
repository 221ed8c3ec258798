"""Losses against reference values (formulas of the papers, equal to verl's functions)."""

import pytest
import torch

from claw_r1.trainer.algorithms.corrections import CorrectionBounds, corrected
from claw_r1.trainer.algorithms.losses import (
    LOSSES,
    bound,
    cispo,
    cross_entropy,
    gspo,
    ppo_clip,
    ppo_dual_clip,
    sequence_means,
)

RATIOS = torch.tensor([1.5, 1.1, 0.5, 0.5, 1.5, 4.0])
ADVANTAGES = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
SEQUENCES = torch.tensor([0, 0, 0, 1, 1, 1])
CLIPS = {"clip_low": 0.2, "clip_high": 0.28}
BEHAVIOUR = torch.full((6,), -2.0)


def at_ratio(ratios):
    return BEHAVIOUR + ratios.log()


def test_ppo_clip_per_token():
    """-min(r A, clip(r, 0.8, 1.28) A): the upper bound binds for A > 0, the lower for A < 0."""
    losses = ppo_clip(at_ratio(RATIOS), BEHAVIOUR, ADVANTAGES, SEQUENCES, **CLIPS)
    assert losses.values.tolist() == pytest.approx([-1.28, -1.1, -0.5, 0.8, 1.5, 4.0], abs=1e-6)
    assert losses.clipped.float().mean().item() == pytest.approx(1 / 3, abs=1e-6)


def test_ppo_dual_clip_per_token():
    """A < 0 costs at most 3 |A|."""
    losses = ppo_dual_clip(at_ratio(RATIOS), BEHAVIOUR, ADVANTAGES, SEQUENCES, **CLIPS)
    assert losses.values.tolist() == pytest.approx([-1.28, -1.1, -0.5, 0.8, 1.5, 3.0], abs=1e-6)
    assert losses.values.mean().item() == pytest.approx(0.403333, abs=1e-6)


def test_gradient_is_zero_where_the_clip_binds():
    """Clipped tokens pull nothing; the others pull with r A over all tokens."""
    logprobs = at_ratio(RATIOS).requires_grad_()
    losses = ppo_dual_clip(logprobs, BEHAVIOUR, ADVANTAGES, SEQUENCES, **CLIPS)
    (losses.values / 6).sum().backward()
    expected = [0, -0.183333, -0.083333, 0, 0.25, 0]
    assert logprobs.grad.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["ppo_clip", "ppo_dual_clip", "gspo", "cispo"])
def test_on_policy_the_gradient_is_minus_the_advantage(name):
    """The denominator is the engine's logprob, a constant."""
    logprobs = BEHAVIOUR.clone().requires_grad_()
    bound(name, **CLIPS)(logprobs, BEHAVIOUR, ADVANTAGES, SEQUENCES).values.sum().backward()
    assert torch.equal(logprobs.grad, -ADVANTAGES)


def test_gspo_takes_the_ratio_of_the_whole_response():
    """s = (product of ratios)^(1/length): (1.5 * 1.1 * .5)^(1/3) = .937889 is within the clip, 3^(1/3) = 1.442250 costs with A < 0."""
    losses = gspo(at_ratio(RATIOS), BEHAVIOUR, ADVANTAGES, SEQUENCES, **CLIPS)
    assert losses.values.tolist() == pytest.approx([-0.937889] * 3 + [1.442250] * 3, abs=1e-6)
    assert not losses.clipped.any()


def test_gspo_clips_whole_responses():
    """s above 1 + high with A > 0: the value is the bound's, and no token of the response pulls, also those below it alone."""
    logprobs = at_ratio(torch.tensor([4.0, 4.0, 0.5, 1.0, 1.1, 1.0])).requires_grad_()
    losses = gspo(logprobs, BEHAVIOUR, torch.ones(6), SEQUENCES, **CLIPS)
    losses.values.sum().backward()
    assert losses.values[:3].tolist() == pytest.approx([-1.28] * 3)
    assert losses.clipped.tolist() == [True] * 3 + [False] * 3
    assert logprobs.grad[:3].tolist() == [0, 0, 0]
    assert logprobs.grad[3:].tolist() == pytest.approx([-(1.1 ** (1 / 3))] * 3)


def test_gspo_by_sequence_mean_has_the_gradient_of_the_papers_objective():
    """-mean over responses of s A, differentiated as it stands; responses of different lengths, their tokens mixed."""
    sequences = torch.tensor([0, 1, 1, 0, 1, 2])
    advantages = torch.tensor([2.0, -1.0, 0.5])
    logprobs = at_ratio(torch.tensor([1.1, 0.9, 1.2, 0.95, 1.05, 0.9])).double().requires_grad_()
    lengths = torch.bincount(sequences)
    per_token = gspo(logprobs, BEHAVIOUR.double(), advantages[sequences], sequences, **CLIPS).values
    (per_token / lengths[sequences] / 3).sum().backward()
    ours, logprobs.grad = logprobs.grad, None
    ratios = [(logprobs - BEHAVIOUR)[sequences == i].mean().exp() for i in range(3)]
    (-sum(ratio * advantage for ratio, advantage in zip(ratios, advantages, strict=True)) / 3).backward()
    assert torch.allclose(ours, logprobs.grad, atol=1e-12)


def test_cispo_bounds_the_weight_and_keeps_every_gradient():
    """-sg(min(r, 1.28)) A log pi, differentiated as it stands; no lower bound: .5 stays .5."""
    logprobs = at_ratio(RATIOS).double().requires_grad_()
    losses = cispo(logprobs, BEHAVIOUR.double(), ADVANTAGES.double(), SEQUENCES, **CLIPS)
    losses.values.sum().backward()
    ours, logprobs.grad = logprobs.grad, None
    weights = torch.tensor([1.28, 1.1, 0.5, 0.5, 1.28, 1.28]).double()
    expected = -weights * ADVANTAGES * logprobs
    expected.sum().backward()
    assert torch.allclose(losses.values, expected, atol=1e-6)
    assert torch.allclose(ours, logprobs.grad, atol=1e-6)
    assert losses.clipped.tolist() == [True, False, False, False, True, True]


def test_cispo_has_the_gradient_of_tis_with_the_same_cap():
    """The weight of either is min(pi / mu, 1 + high)."""
    gradients = []
    for name, correction, cap in (("cispo", "none", 2.0), ("ppo_clip", "tis", 1.28)):
        logprobs = at_ratio(RATIOS).requires_grad_()
        bounds = CorrectionBounds(cap=cap)
        weighed = corrected(correction, logprobs, None, BEHAVIOUR, ADVANTAGES, SEQUENCES, bounds)
        values = bound(name, **CLIPS)(logprobs, weighed.denominator, ADVANTAGES, SEQUENCES).values
        (weighed.weights * values).sum().backward()
        gradients.append(logprobs.grad)
    assert torch.allclose(*gradients, atol=1e-6)


def test_means_of_sequences():
    """At each token the mean of its own sequence, wherever its tokens stand."""
    means = sequence_means(torch.tensor([1.0, 10.0, 3.0]), torch.tensor([1, 0, 1]))
    assert means.tolist() == [2.0, 10.0, 2.0]


def test_a_hopeless_ratio_stays_finite():
    """Behaviour probability near 0: the loss is bounded, not infinite."""
    for name in LOSSES:
        tokens = torch.tensor([0.0]), torch.tensor([-500.0]), torch.tensor([-1.0]), torch.tensor([0])
        values = bound(name, **CLIPS)(*tokens).values
        assert torch.isfinite(values).all()


def test_cross_entropy_is_the_likelihood_of_what_is_trained():
    """-log pi per token times its weight; who sampled it and the clip bounds change nothing."""
    logprobs = torch.tensor([-0.5, -2.0, -1.0, -0.25], requires_grad=True)
    weights = torch.tensor([1.0, 1.0, 0.0, 1.0])
    losses = cross_entropy(logprobs, torch.full((4,), -9.0), weights, torch.tensor([0, 0, 1, 1]), **CLIPS)
    assert torch.allclose(losses.values, torch.tensor([0.5, 2.0, 0.0, 0.25]))
    assert not losses.clipped.any()

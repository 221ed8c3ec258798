"""Off-policy corrections: weights against reference numbers, and the learning that each stands for."""

import pytest
import torch

from claw_r1.trainer.algorithms.corrections import CORRECTIONS, corrected, sequence_mask, truncated
from claw_r1.trainer.algorithms.losses import ppo_clip

BEHAVIOUR = torch.full((6,), -2.0)
OLD = BEHAVIOUR + torch.tensor([1.0, 1.5, 4.0, 0.5, 1.0, 3.0]).log()
SEQUENCES = torch.tensor([0, 0, 0, 1, 1, 1])
ADVANTAGES = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])


def test_tis_truncates_each_token():
    """w 1, 1.5, 4, .5, 1, 3 at cap 2."""
    assert truncated(OLD, BEHAVIOUR, cap=2.0).tolist() == pytest.approx([1, 1.5, 2, 0.5, 1, 2], abs=1e-6)


def test_a_response_is_masked_by_its_geometric_mean():
    """(1 * 1.5 * 4)^(1/3) = 1.817121 and (.5 * 1 * 3)^(1/3) = 1.144714; both bounds count."""
    assert sequence_mask(OLD, BEHAVIOUR, SEQUENCES, low=0.5, high=1.8).tolist() == [0, 0, 0, 1, 1, 1]
    assert sequence_mask(OLD, BEHAVIOUR, SEQUENCES, low=1.2, high=2.0).tolist() == [1, 1, 1, 0, 0, 0]


def gradient(name, logprobs, proximal=None, mask=None):
    policy = logprobs.clone().requires_grad_()
    correction = corrected(name, policy, proximal, BEHAVIOUR, SEQUENCES, cap=2.0, mask=mask)
    values = ppo_clip(policy, correction.denominator, ADVANTAGES, SEQUENCES, clip_low=0.2, clip_high=0.28).values
    (correction.weights * values).sum().backward()
    assert not correction.weights.requires_grad
    return policy.grad


def test_without_a_correction_the_clip_removes_what_is_off_policy():
    """Ratios 1.5 and 4 with A > 0 pull nothing, .5 with A < 0 neither; metrics does the same."""
    expected = [-1.0, 0, 0, 0, 1.0, 3.0]
    assert gradient("none", OLD).tolist() == pytest.approx(expected, abs=1e-6)
    assert gradient("metrics", OLD, OLD, mask=(0.9, 1.1)).tolist() == pytest.approx(expected, abs=1e-6)


def test_tis_pulls_with_the_truncated_weight():
    """-min(w, 2) A per token: nothing is clipped away."""
    assert gradient("tis", OLD).tolist() == pytest.approx([-1, -1.5, -2, 0.5, 1, 2], abs=1e-6)


def test_decoupled_clips_against_the_proximal_policy():
    """In the first step it is TIS; later the ratio policy / proximal is clipped, whatever the behaviour was."""
    assert torch.allclose(gradient("decoupled", OLD, OLD), gradient("tis", OLD))
    moved = OLD + torch.tensor([0.1, 0.5, 0.0, -0.5, 0.0, 0.0])
    expected = [-1 * 1.105171, 0, -2, 0, 1, 2]
    assert gradient("decoupled", moved, OLD).tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["none", "tis", "decoupled"])
def test_the_mask_comes_on_top(name):
    """Tokens of a masked response have weight 0, the others what they had."""
    whole = gradient(name, OLD, OLD)
    masked = gradient(name, OLD, OLD, mask=(0.5, 1.8))
    assert masked[:3].tolist() == [0, 0, 0]
    assert torch.equal(masked[3:], whole[3:])


@pytest.mark.parametrize("name", CORRECTIONS)
def test_on_policy_every_correction_does_nothing(name):
    """Weights 1, and the gradient of the plain loss."""
    assert torch.allclose(gradient(name, BEHAVIOUR, BEHAVIOUR), -ADVANTAGES)


def test_metrics_measures_what_it_does_not_do():
    """Weights 1, and beside them those that TIS with the mask would give."""
    correction = corrected("metrics", OLD, OLD, BEHAVIOUR, SEQUENCES, cap=2.0, mask=(0.5, 1.8))
    assert correction.weights.tolist() == [1] * 6
    assert correction.measured.tolist() == pytest.approx([0, 0, 0, 0.5, 1, 2], abs=1e-6)

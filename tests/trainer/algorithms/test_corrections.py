"""Off-policy corrections: weights against reference numbers, and the learning that each stands for."""

import pytest
import torch

from claw_r1.trainer.algorithms.corrections import (
    CORRECTIONS,
    CorrectionBounds,
    corrected,
    sequence_mask,
    stale_negatives,
    truncated,
)
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


def gradient(name, logprobs, proximal=None, **bounds):
    policy = logprobs.clone().requires_grad_()
    held_to = CorrectionBounds(**bounds)
    correction = corrected(name, policy, proximal, BEHAVIOUR, ADVANTAGES, SEQUENCES, held_to)
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


def ragged(seed):
    """Three responses of different lengths, their tokens mixed; mu, pi_0, pi and A, in float64."""
    dice = torch.Generator().manual_seed(seed)
    sequences = torch.tensor([0, 1, 1, 0, 2, 1, 2, 2, 2])
    draws = torch.randn(3, 9, generator=dice).double()
    behaviour = -2 + draws[0] / 4
    proximal = -2 + draws[1] / 2
    logprobs = proximal + draws[2] / 5
    advantages = torch.tensor([1.0, -1.0, -0.5]).double()
    return sequences, behaviour, proximal, logprobs, advantages[sequences]


@pytest.mark.parametrize("seed", range(5))
def test_icepop_is_the_papers_objective(seed):
    """M(pi_0 / mu) min(r A, clip(r) A) with r = pi / pi_0 and M(k) = k inside the band and 0 outside, token by token."""
    sequences, behaviour, proximal, logprobs, advantages = ragged(seed)
    ours, reference = (logprobs.clone().requires_grad_() for _ in range(2))
    bounds = CorrectionBounds(low=0.8, high=1.25)
    icepop = corrected("icepop", ours, proximal, behaviour, advantages, sequences, bounds)
    clips = {"clip_low": 0.2, "clip_high": 0.28}
    values = icepop.weights * ppo_clip(ours, icepop.denominator, advantages, sequences, **clips).values
    values.sum().backward()
    expected = []
    for token in range(len(sequences)):
        k = (proximal[token] - behaviour[token]).exp()
        r, gain = (reference[token] - proximal[token]).exp(), advantages[token]
        expected.append(-(k if 0.8 <= k <= 1.25 else 0) * torch.minimum(r * gain, r.clip(0.8, 1.28) * gain))
    torch.stack(expected).sum().backward()
    assert 0 < (icepop.weights == 0).sum() < len(sequences)
    assert torch.allclose(values, torch.stack(expected), atol=1e-6)
    assert torch.allclose(ours.grad, reference.grad, atol=1e-6)
    assert torch.equal(icepop.measured, icepop.weights)


def test_icepop_keeps_the_bounds_of_its_band():
    """w 1, 1.5, 4, .5, 1, 3 in [.5, 3]; by default up to 5."""
    logprobs = OLD.double()
    band = CorrectionBounds(low=0.5 - 1e-6, high=3 + 1e-6)
    weights = [
        corrected("icepop", logprobs, logprobs, BEHAVIOUR, ADVANTAGES, SEQUENCES, bounds).weights.tolist()
        for bounds in (band, CorrectionBounds(low=0.1))
    ]
    assert weights[0] == pytest.approx([1, 1.5, 0, 0.5, 1, 3], abs=1e-6)
    assert weights[1] == pytest.approx([1, 1.5, 4, 0.5, 1, 3], abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["none", "tis", "decoupled", "icepop"])
def test_stale_negatives_teach_nothing(seed, name):
    """A < 0 and mean(log mu - log pi) > delta over the response, by a loop over responses: their tokens have weight 0, all others
    what they had. It is the policy of this step that is compared, not the one before the batch."""
    sequences, behaviour, proximal, logprobs, advantages = ragged(seed)
    means = [(behaviour - logprobs)[sequences == response].mean() for response in range(3)]
    delta = float(sum(sorted(means)[1:])) / 2  # the largest alone is above
    if delta <= 0:
        delta = 1e-3
    expected = [
        0.0 if advantages[token] < 0 and means[sequences[token]] > delta else 1.0 for token in range(len(sequences))
    ]
    mask = stale_negatives(logprobs, behaviour, advantages, sequences, delta=delta)
    assert mask.tolist() == expected
    plain, masked = (
        corrected(name, logprobs, proximal, behaviour, advantages, sequences, CorrectionBounds(negatives=bound))
        for bound in (None, delta)
    )
    assert torch.allclose(masked.weights, plain.weights * mask, atol=1e-12)
    assert torch.equal(masked.denominator, plain.denominator)


def test_a_good_reply_is_never_stale():
    """Means of log mu / pi .7 in both responses: the one with A < 0 is masked, the one with A > 0 teaches, and below delta both do."""
    far = BEHAVIOUR - 0.7
    masks = [stale_negatives(far, BEHAVIOUR, ADVANTAGES, SEQUENCES, delta=delta).tolist() for delta in (0.6, 0.8)]
    assert masks == [[1, 1, 1, 0, 0, 0], [1] * 6]
    assert gradient("none", far, negatives=0.6)[3:].tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["none", "tis", "decoupled", "icepop"])
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
    bounds = CorrectionBounds(mask=(0.5, 1.8))
    correction = corrected("metrics", OLD, OLD, BEHAVIOUR, ADVANTAGES, SEQUENCES, bounds)
    assert correction.weights.tolist() == [1] * 6
    assert correction.measured.tolist() == pytest.approx([0, 0, 0, 0.5, 1, 2], abs=1e-6)

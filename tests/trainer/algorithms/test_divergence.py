"""Estimates of the KL to a reference: reference numbers and what Schulman's note promises of them."""

import pytest
import torch

from claw_r1.trainer.algorithms.divergence import DIVERGENCES

LOGPROBS = torch.tensor([-1.0, -2.0, -0.5])
REFERENCE = torch.tensor([-1.2, -1.5, -0.5])


@pytest.mark.parametrize(
    ("name", "values"),
    [("k1", [0.2, -0.5, 0.0]), ("k2", [0.02, 0.125, 0.0]), ("k3", [0.018731, 0.148721, 0.0])],
)
def test_per_token(name, values):
    """k1 = log r, k2 = (log r)^2 / 2, k3 = 1/r - 1 + log r with r = pi / ref."""
    assert DIVERGENCES[name](LOGPROBS, REFERENCE).tolist() == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize("name", ["k1", "k3"])
def test_the_expectation_is_the_kl(name):
    """Over the policy's own distribution of five tokens, exactly."""
    generator = torch.Generator().manual_seed(0)
    policy = torch.randn(5, generator=generator).double().log_softmax(-1)
    reference = torch.randn(5, generator=generator).double().log_softmax(-1)
    kl = (policy.exp() * (policy - reference)).sum()
    assert (policy.exp() * DIVERGENCES[name](policy, reference)).sum().item() == pytest.approx(kl.item())


def test_the_expected_gradient_of_k2_is_that_of_the_kl_and_of_k1_it_is_none():
    """Which is why k1 belongs in a reward and not in a loss (docs/algorithms.md)."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(5, generator=generator).double().requires_grad_()
    reference = torch.randn(5, generator=generator).double().log_softmax(-1)

    def gradient(scalar):
        return torch.autograd.grad(scalar, logits)[0]

    policy = logits.log_softmax(-1)
    weights = policy.exp().detach()
    of_kl = gradient((policy.exp() * (policy - reference)).sum())
    policy = logits.log_softmax(-1)
    assert torch.allclose(gradient((weights * DIVERGENCES["k2"](policy, reference)).sum()), of_kl)
    policy = logits.log_softmax(-1)
    nothing = gradient((weights * DIVERGENCES["k1"](policy, reference)).sum())
    assert torch.allclose(nothing, torch.zeros(5).double(), atol=1e-12)

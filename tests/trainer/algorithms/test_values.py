"""The critic's loss and the variance that it explains, against reference numbers."""

import math

import numpy as np
import pytest
import torch

from claw_r1.trainer.algorithms.values import explained_variance, value_loss


def test_the_clipped_loss_of_values():
    """V .9, .2, .5; R 1, 1, 0; old .5, .4, .5; clip .2: max of (V - R)^2 and (clipped V - R)^2, halved; mean .163333."""
    values = torch.tensor([0.9, 0.2, 0.5], requires_grad=True)
    losses = value_loss(values, torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0.5, 0.4, 0.5]), clip=0.2)
    assert losses.values.tolist() == pytest.approx([0.045, 0.32, 0.125], abs=1e-6)
    assert losses.values.mean().item() == pytest.approx(0.163333, abs=1e-6)
    assert losses.clipped.tolist() == [True, False, False]
    losses.values.sum().backward()
    assert values.grad.tolist() == pytest.approx([0, -0.8, 0.5], abs=1e-6)  # too far from the old value: no pull


def test_explained_variance():
    """1 for perfect values, 0 for a constant, negative for worse; no number where returns do not differ."""
    returns = np.array([0.0, 1.0, 2.0, 5.0])
    assert explained_variance(returns, returns) == 1
    assert explained_variance(np.full(4, 7.0), returns) == pytest.approx(0)
    assert explained_variance(-returns, returns) == pytest.approx(-3)
    assert math.isnan(explained_variance(np.array([0.5, 0.5]), np.array([1.0, 1.0])))

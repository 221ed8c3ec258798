"""Metrics by version lag: sums of parts, unknown versions, empty lags."""

import pytest
import torch

from claw_r1.trainer.algorithms.lags import lag_metrics, lag_sums

LAGS = torch.tensor([0, 0, 1, 5, 3, -1])
BEHAVIOUR = torch.full((6,), -1.0)
OLD = BEHAVIOUR + torch.tensor([1.0, 3.0, 1.0, 0.5, 1.5, 9.0]).log()
ENTROPY = torch.tensor([0.5, 1.5, 2.0, 3.0, 1.0, 9.0])
CLIPPED = torch.tensor([False, True, False, True, True, True])


def test_each_lag_has_its_own_means():
    """ESS (1 + 3)^2 / (2 * (1 + 9)) = .8; 3 and more are one; a token of unknown version counts nowhere; lag 2 has none."""
    metrics = lag_metrics(lag_sums(LAGS, OLD, BEHAVIOUR, ENTROPY, CLIPPED))
    assert metrics["lag_0_ess"] == pytest.approx(0.8)
    assert metrics["lag_0_kl_k1"] == pytest.approx(-0.549306, abs=1e-6)
    assert metrics["lag_0_entropy"] == pytest.approx(1.0)
    assert metrics["lag_0_clip_share"] == pytest.approx(0.5)
    assert metrics["lag_1_ess"] == pytest.approx(1.0)
    assert metrics["lag_1_kl_k3"] == pytest.approx(0.0)
    assert metrics["lag_3_tokens"] == 2
    assert metrics["lag_3_clip_share"] == 1
    assert not [name for name in metrics if name.startswith("lag_2")]
    assert sum(value for name, value in metrics.items() if name.endswith("tokens")) == 5


def test_parts_add_up():
    """Micro-batches and ranks."""
    parts = [
        lag_sums(LAGS[part], OLD[part], BEHAVIOUR[part], ENTROPY[part], CLIPPED[part])
        for part in (slice(0, 1), slice(1, 4), slice(4, 6))
    ]
    whole = lag_metrics(lag_sums(LAGS, OLD, BEHAVIOUR, ENTROPY, CLIPPED))
    assert lag_metrics(sum(parts)) == pytest.approx(whole)

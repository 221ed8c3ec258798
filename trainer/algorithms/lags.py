"""The distance of a batch's tokens from the policy, by version lag: the version trained less the one that sampled the
token.

Sums are kept, so that micro-batches and ranks add up.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from claw_r1.trainer.algorithms.losses import log_ratio

LAGS = 4
"""0, 1, 2, and 3 or more."""


class LagColumns(NamedTuple):
    """Columns of the sums, float64; in this order."""

    tokens: Tensor
    ratio: Tensor
    ratio_squared: Tensor
    k1: Tensor
    k3: Tensor
    entropy: Tensor
    clipped: Tensor


def lag_sums(lags: Tensor, old: Tensor, behaviour: Tensor, entropy: Tensor, clipped: Tensor) -> Tensor:
    """[LAGS, columns of `LagColumns`], float64, of one part of a batch; add them up over all parts.

    All vectors [T]: lags int64 (negative: version unknown, not counted), old the log-probabilities of the policy that is
    compared with the behaviour's, entropy in nats, clipped 0 or 1.
    """
    with torch.no_grad():
        lr = log_ratio(old, behaviour).double()
        ratio = lr.exp()
        columns = LagColumns(
            tokens=torch.ones_like(lr),
            ratio=ratio,
            ratio_squared=ratio * ratio,
            k1=-lr,
            k3=ratio - 1 - lr,
            entropy=entropy.double(),
            clipped=clipped.double(),
        )
        of_lag = torch.arange(LAGS, device=lags.device)[:, None] == lags.clamp(max=LAGS - 1)[None, :]
        # Chosen, not multiplied by zeros and ones: 0 * nan would take every lag along.
        return torch.where(of_lag[:, :, None], torch.stack(columns, dim=1), 0.0).sum(1)


def lag_metrics(sums: Tensor) -> dict[str, float]:
    """Means by lag; `lag_3` is 3 or more, a lag without tokens is left out.

    `ess`: effective sample size of the ratios over their number, in (0, 1]. `kl_k1`, `kl_k3`: KL(behaviour || policy) from
    the behaviour's samples (Schulman 2020).
    """
    metrics: dict[str, float] = {}
    for lag, line in enumerate(sums.tolist()):
        n, ratio, squared, k1, k3, entropy, clipped = line
        if n:
            means = {"ess": ratio**2 / (n * squared), "kl_k1": k1 / n, "kl_k3": k3 / n, "entropy": entropy / n}
            means |= {"clip_share": clipped / n, "tokens": n}
            metrics |= {f"lag_{lag}_{name}": value for name, value in means.items()}
    return metrics

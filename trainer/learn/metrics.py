"""The metrics of a batch under the policy that was trained on it,
before the update.

Sums are kept per token, so that micro-batches and ranks add up to the
same metrics. All are over trained tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from claw_r1.trainer.algorithms.lags import LAGS, LagColumns, lag_metrics, lag_sums
from claw_r1.trainer.algorithms.losses import log_ratio
from claw_r1.trainer.learn.examples import ENVIRONMENTS_MAX
from claw_r1.trainer.learn.layouts import TrainedTokens
from claw_r1.trainer.learn.logprobs import TokenScores
from claw_r1.trainer.learn.objective import ObjectiveLosses

BY_ENVIRONMENT = ("entropy", "clip_share", "kl_k3", "ratio_mean", "masked_share")
"""Means that each environment has."""


class TokenColumns(NamedTuple):
    """Columns of the sums; in this order."""

    tokens: Tensor
    loss: Tensor
    entropy: Tensor
    clipped: Tensor
    k1: Tensor
    k3: Tensor
    ratio: Tensor
    ratio_squared: Tensor
    correction: Tensor
    masked: Tensor


@dataclass(slots=True)
class TokenTotals:
    """Running sums over the trained tokens of a batch; `merge` adds those of another part or rank.

    `sums`: [ENVIRONMENTS_MAX + 1, columns of `TokenColumns`].
    `lags`: [LAGS, columns of `LagColumns`]. `scored`: tokens that
    were scored, of which the others are estimates. `gap`:
    [tokens, largest] of |engine - trainer| over tokens of the
    version that is trained.
    """

    sums: Tensor = field(default_factory=lambda: _zeros(ENVIRONMENTS_MAX + 1, len(TokenColumns._fields)))
    lags: Tensor = field(default_factory=lambda: _zeros(LAGS, len(LagColumns._fields)))
    scored: int = 0
    gap: tuple[int, float] = (0, 0.0)

    @torch.no_grad()
    def add(
        self,
        tokens: TrainedTokens,
        scores: TokenScores,
        losses: ObjectiveLosses,
        *,
        version: int,
        on_policy: bool = True,
        weight: float = 1.0,
    ) -> None:
        """version: the one being trained. on_policy: no step was taken since; else there is no gap to be measured.

        weight: how many tokens each one stands for, where a sample is scored instead of all.
        """
        old = scores.logprobs if tokens.proximal is None else tokens.proximal
        lr = log_ratio(old, tokens.behaviour).double()
        ratio = lr.exp()
        columns = TokenColumns(
            tokens=torch.ones_like(lr),
            loss=losses.values.double(),
            entropy=scores.entropy.double(),
            clipped=losses.clipped.double(),
            k1=-lr,
            k3=ratio - 1 - lr,
            ratio=ratio,
            ratio_squared=ratio * ratio,
            correction=losses.correction.double(),
            masked=(losses.correction == 0).double(),
        )
        lag = torch.where(tokens.versions < 0, -1, version - tokens.versions)
        self.sums.index_add_(0, tokens.environments.cpu(), torch.stack(columns, dim=1).cpu(), alpha=weight)
        self.lags += weight * lag_sums(lag, old, tokens.behaviour, scores.entropy, losses.clipped).cpu()
        self.scored += len(tokens)
        # Not a number is no gap of 0, which Python's `max` would make of it.
        gaps = (scores.logprobs - tokens.behaviour)[lag == 0].abs().nan_to_num(nan=math.inf, posinf=math.inf)
        if on_policy and len(gaps):
            self.gap = self.gap[0] + len(gaps), max(self.gap[1], float(gaps.max()))

    def merge(self, other: "TokenTotals") -> None:
        """Both together."""
        self.sums, self.lags = self.sums + other.sums, self.lags + other.lags
        self.scored += other.scored
        self.gap = self.gap[0] + other.gap[0], max(self.gap[1], other.gap[1])

    def means(self, environments: Sequence[str] = ()) -> dict[str, float]:
        """Returns means per token, and `env.NAME.…` of each environment.

        `kl_k1`, `kl_k3` estimate KL(engine || trainer) from the engine's samples (Schulman 2020). `ess`: effective
        sample size of the importance ratios over their number, in (0, 1]. `correction_mean`: of the weights that
        off-policy correction gives, `masked_share`: of tokens that it masks. `max_logprob_gap`: max |engine - trainer|
        over tokens of the very version that is trained; absent where the batch has none. Where not every token was
        scored (`unscored_tokens`), those that have nothing to teach are estimated from the sample of them. By version
        lag, where there is more than one: `lag_0_kl_k3`, ...; lag_3 is 3 or more.
        """
        all_tokens = self.sums.sum(0)
        tokens = float(all_tokens[0])
        by_lag = lag_metrics(self.lags) if int((self.lags[:, 0] > 0).sum()) > 1 else {}
        return {
            **_means(all_tokens),
            "trained_tokens": float(round(tokens)),
            "unscored_tokens": float(round(tokens) - self.scored),
            "gap_tokens": float(self.gap[0]),
            **({"max_logprob_gap": self.gap[1]} if self.gap[0] else {}),
            **by_lag,
            **self._by_environment(environments),
        }

    def _by_environment(self, environments: Sequence[str]) -> dict[str, float]:
        by_name = {name: _means(sums) for name, sums in zip(environments, self.sums, strict=False) if sums[0]}
        return {f"env.{name}.{metric}": means[metric] for name, means in by_name.items() for metric in BY_ENVIRONMENT}


def _zeros(rows: int, columns: int) -> Tensor:
    return torch.zeros(rows, columns, dtype=torch.float64)


def _means(of_columns: Tensor) -> dict[str, float]:
    """Means of sums of `TokenColumns`; zeros where there are no tokens."""
    sums = dict(zip(TokenColumns._fields, of_columns.tolist(), strict=True))
    n = max(sums["tokens"], 1)
    squared = n * sums["ratio_squared"]
    return {
        "loss": sums["loss"] / n,
        "entropy": sums["entropy"] / n,
        "clip_share": sums["clipped"] / n,
        "kl_k1": sums["k1"] / n,
        "kl_k3": sums["k3"] / n,
        "ratio_mean": sums["ratio"] / n,
        "ess": sums["ratio"] ** 2 / squared if squared else 1.0,
        "correction_mean": sums["correction"] / n,
        "masked_share": sums["masked"] / n,
    }


def merged(parts: Sequence[TokenTotals]) -> TokenTotals:
    """All of them together."""
    whole = TokenTotals()
    for part in parts:
        whole.merge(part)
    return whole


def finite(metrics: dict[str, float]) -> dict[str, float]:
    """Metrics as events and JSON carry them: what is not a finite number becomes `nonfinite_<name>: 1`."""
    numbers = {name if math.isfinite(value) else f"nonfinite_{name}": value for name, value in metrics.items()}
    return {name: float(value) if math.isfinite(value) else 1.0 for name, value in sorted(numbers.items())}

"""What a batch looked like to the policy that was trained on it, before the update.

Sums are kept per token, so that micro-batches of any size give the same metrics. All are over trained tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from trainer.algorithms.losses import log_ratio


@dataclass(slots=True)
class TokenTotals:
    """Running sums over the trained tokens of a batch."""

    tokens: int = 0
    loss: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    k1: float = 0.0
    k3: float = 0.0
    ratio: float = 0.0
    ratio_squared: float = 0.0
    gap_tokens: int = 0
    gap_max: float = field(default=0.0)

    @classmethod
    def of(cls, parts: "Sequence[TokenTotals]") -> "TokenTotals":
        """Of several parts of a batch together."""
        names = [each.name for each in fields(cls)]
        columns = {name: [getattr(part, name) for part in parts] for name in names}
        return cls(**{name: max(values) if name == "gap_max" else sum(values) for name, values in columns.items()})

    def add(
        self,
        *,
        losses: Tensor,
        clipped: Tensor,
        entropy: Tensor,
        logprobs: Tensor,
        behaviour: Tensor,
        current: Tensor,
    ) -> None:
        """All tensors [T], of trained tokens. `current` marks those that the version being trained sampled."""
        with torch.no_grad():
            lr = log_ratio(logprobs, behaviour).double()
            ratio = lr.exp()
            self.tokens += len(lr)
            self.loss += float(losses.double().sum())
            self.entropy += float(entropy.double().sum())
            self.clipped += float(clipped.sum())
            self.k1 += float(-lr.sum())
            self.k3 += float((ratio - 1 - lr).sum())
            self.ratio += float(ratio.sum())
            self.ratio_squared += float((ratio * ratio).sum())
            self._add_gap((logprobs - behaviour)[current])

    def _add_gap(self, gaps: Tensor) -> None:
        if gaps.numel():
            self.gap_tokens += gaps.numel()
            self.gap_max = max(self.gap_max, float(gaps.abs().max()))

    def means(self) -> dict[str, float]:
        """Per-token means. `kl_k1`, `kl_k3` estimate KL(engine || trainer) from the engine's samples (Schulman 2020).

        `ess`: effective sample size of the importance ratios over their number, in (0, 1]. `max_logprob_gap`:
        max |engine - trainer| over tokens of the very version that is trained; absent where the batch has none.
        """
        n = max(self.tokens, 1)
        gap = {"max_logprob_gap": self.gap_max} if self.gap_tokens else {}
        return {
            "loss": self.loss / n,
            "entropy": self.entropy / n,
            "clip_share": self.clipped / n,
            "kl_k1": self.k1 / n,
            "kl_k3": self.k3 / n,
            "ratio_mean": self.ratio / n,
            "ess": self.ratio**2 / (n * self.ratio_squared) if self.ratio_squared else 1.0,
            "trained_tokens": float(self.tokens),
            "gap_tokens": float(self.gap_tokens),
            **gap,
        }


def finite(metrics: dict[str, float]) -> dict[str, float]:
    """Metrics as events and JSON carry them: what is not a finite number becomes `nonfinite_<name>: 1`."""
    numbers = {name if math.isfinite(value) else f"nonfinite_{name}": value for name, value in metrics.items()}
    return {name: float(value) if math.isfinite(value) else 1.0 for name, value in sorted(numbers.items())}

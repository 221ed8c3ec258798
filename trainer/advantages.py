"""Returns of one group -> advantages. Baselines are over trajectories, never over calls or training rows.

Pure Python: groups are small, and a plan freezes the result, so that no device rounds it differently.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence

EPSILON = 1e-4


def grpo(returns: Sequence[float]) -> list[float]:
    """(R - mean) / (std + 1e-4) with the sample deviation (ddof 1); all 0 where no two returns differ.

    DeepSeekMath, arXiv 2402.03300; ddof and epsilon as in TRL.
    """
    if len(returns) < 2 or max(returns) == min(returns):
        return [0.0] * len(returns)
    mean, scale = statistics.fmean(returns), statistics.stdev(returns) + EPSILON
    return [(value - mean) / scale for value in returns]


def dr_grpo(returns: Sequence[float]) -> list[float]:
    """R - mean, without the scale. Dr. GRPO, arXiv 2503.20783."""
    mean = statistics.fmean(returns)
    return [value - mean for value in returns]


def rloo(returns: Sequence[float]) -> list[float]:
    """R_i - mean of the others = k / (k - 1) * (R_i - mean). arXiv 2402.14740. Needs two returns."""
    k = len(returns)
    return [k / (k - 1) * value for value in dr_grpo(returns)]


ADVANTAGES: Mapping[str, Callable[[Sequence[float]], list[float]]] = {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}
"""By `BatchSpec.algorithm`; the spec says which of them may be asked for."""

"""Estimates of KL(policy || reference) per token, from the log-probabilities of the tokens that were sampled.

J. Schulman, "Approximating KL divergence" (2020), joschu.net/blog/kl-approx.html. All three have the right mean or
nearly so under the policy's own samples; as terms of a loss their gradients differ (docs/algorithms.md).
"""

from collections.abc import Callable, Mapping

from torch import Tensor

from claw_r1.trainer.algorithms.losses import log_ratio


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    """log(pi / ref): unbiased, of high variance, negative for some tokens. Its gradient has mean 0: of use in a reward only."""
    return log_ratio(logprobs, reference)


def k2(logprobs: Tensor, reference: Tensor) -> Tensor:
    """log(pi / ref)^2 / 2: never negative, biased; its gradient is that of the KL."""
    return log_ratio(logprobs, reference) ** 2 / 2


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """ref / pi - 1 - log(ref / pi): unbiased, never negative, of low variance. GRPO's choice, arXiv 2402.03300."""
    log_inverse = -log_ratio(logprobs, reference)
    return log_inverse.exp() - 1 - log_inverse


Divergence = Callable[[Tensor, Tensor], Tensor]
"""(logprobs, reference), both [T] -> [T]; gradients flow through logprobs."""
DIVERGENCES: Mapping[str, Divergence] = {"k1": k1, "k2": k2, "k3": k3}

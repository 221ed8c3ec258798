"""The objective that a batch is trained towards: settings -> the loss of its trained tokens. Knows neither rows nor
trees nor ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from torch import Tensor

from claw_r1.trainer.algorithms.corrections import CORRECTIONS, CorrectionBounds, corrected
from claw_r1.trainer.algorithms.divergence import Divergence
from claw_r1.trainer.algorithms.losses import Loss
from claw_r1.trainer.learn.examples import Example, scaled
from claw_r1.trainer.learn.layouts import TrainedTokens
from claw_r1.trainer.learn.logprobs import TokenScores


class ObjectiveLosses(NamedTuple):
    """All [T]. `values` with the weights of the tokens applied. `correction`: off-policy weights, as measured."""

    values: Tensor
    clipped: Tensor
    correction: Tensor


@dataclass(frozen=True, slots=True)
class Split:
    """The examples of one optimizer step. `silent`: a sample of those without gradient, of which each token
    stands for `weight`."""

    taught: list[Example]
    silent: list[Example]
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """`norm`: a name of `algorithms.norms.NORMS`. `loss_length`: tokens, of norm `constant`. `divergence`: from the
    reference, added to the loss with the factor `kl_coefficient`; None: there is none.

    `correction`: a name of `algorithms.corrections.CORRECTIONS`, with its `bounds`.
    `entropy_bonus`: coefficient. `silent_sample`: number of examples without gradient scored for metrics.
    """

    loss: Loss
    norm: str = "token_mean"
    loss_length: int = 1024
    correction: str = "none"
    bounds: CorrectionBounds = field(default_factory=CorrectionBounds)
    entropy_bonus: float = 0.0
    silent_sample: int = 16
    divergence: Divergence | None = None
    kl_coefficient: float = 0.0

    @property
    def needs_proximal(self) -> bool:
        """The log-probabilities before the first step of a batch must be there at its later steps."""
        return CORRECTIONS[self.correction].proximal or self.bounds.mask is not None

    def scaled(self, examples: Sequence[Example], trajectories: int) -> list[Example]:
        """The examples of one optimizer step with the scales of `norm`. trajectories: of the step."""
        return scaled(examples, self.norm, trajectories=trajectories, loss_length=self.loss_length)

    def teaches(self, example: Example) -> bool:
        """Returns whether any term of the loss has a gradient at any of its tokens."""
        policy = example.weights[:, 0] != 0
        if not self.entropy_bonus:
            policy &= example.advantages != 0  # nan is not 0: it must be seen, and the step skipped
        others = example.weights[:, 1] != 0
        if self.divergence is not None and self.kl_coefficient:
            others |= example.weights[:, 2] != 0
        return bool((policy | others).any())

    def split(self, examples: Sequence[Example], seed: int) -> Split:
        """Splits examples into those that the loss needs, and a sample of the others. Where it needs none, the shortest
        one is trained all the same: the optimizer's momentum goes on as it would have. A function of its arguments, so
        a replay repeats it."""
        taught = [example for example in examples if self.teaches(example)]
        others = [example for example in examples if not self.teaches(example)]
        if others and not taught:
            taught = [others.pop(min(range(len(others)), key=lambda index: len(others[index])))]
        chosen = np.random.default_rng(seed).permutation(len(others))[: self.silent_sample]
        silent = [others[index] for index in sorted(chosen)]
        tokens, sampled = (sum(len(example.at) for example in some) for some in (others, silent))
        return Split(taught, silent, tokens / max(sampled, 1))

    def losses(self, tokens: TrainedTokens, scores: TokenScores) -> ObjectiveLosses:
        """Per token, weights applied."""
        off_policy = corrected(
            self.correction,
            scores.logprobs,
            tokens.proximal,
            tokens.behaviour,
            tokens.advantages,
            tokens.responses,
            self.bounds,
        )
        policy = self.loss(scores.logprobs, off_policy.denominator, tokens.advantages, tokens.responses)
        towards = off_policy.weights * policy.values - self.entropy_bonus * scores.entropy
        values = tokens.weights[:, 0] * towards - tokens.weights[:, 1] * scores.logprobs
        if self.divergence is not None and tokens.reference is not None:
            kl = self.divergence(scores.logprobs, tokens.reference)
            values = values + self.kl_coefficient * tokens.weights[:, 2] * kl
        return ObjectiveLosses(values, policy.clipped, off_policy.measured)


def summed(losses: ObjectiveLosses, tokens: TrainedTokens) -> Tensor:
    """Share of these tokens in the loss of the batch (scalar): parts of any size add up to one pass over everything."""
    return (tokens.scale * losses.values).sum()

"""What a batch is trained towards: settings -> the loss of its trained tokens. Knows neither rows nor trees nor ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from trainer.algorithms.divergence import Divergence
from trainer.algorithms.losses import Loss, TokenLosses
from trainer.learn.examples import Example, scaled
from trainer.learn.head import TokenScores
from trainer.learn.layouts import TrainedTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """`norm`: a name of `algorithms.norms.NORMS`. `loss_length`: tokens, of norm `constant`. `divergence`: from the
    reference, `kl_coefficient` times of which is added to the loss; None: there is none in the loss."""

    loss: Loss
    norm: str = "token_mean"
    loss_length: int = 1024
    divergence: Divergence | None = None
    kl_coefficient: float = 0.0

    def scaled(self, examples: Sequence[Example], trajectories: int) -> list[Example]:
        """The examples of one optimizer step with the scales of `norm`. trajectories: of the batch."""
        return scaled(examples, self.norm, trajectories=trajectories, loss_length=self.loss_length)

    def losses(self, tokens: TrainedTokens, scores: TokenScores) -> TokenLosses:
        """Per token, weights applied."""
        policy = self.loss(scores.logprobs, tokens.behaviour, tokens.advantages, tokens.responses)
        values = tokens.weights[:, 0] * policy.values - tokens.weights[:, 1] * scores.logprobs
        if self.divergence is not None and tokens.reference is not None:
            kl = self.divergence(scores.logprobs, tokens.reference)
            values = values + self.kl_coefficient * tokens.weights[:, 2] * kl
        return TokenLosses(values, policy.clipped)


def summed(losses: TokenLosses, tokens: TrainedTokens) -> Tensor:
    """Share of these tokens in the loss of the batch (scalar): parts of any size add up to one pass over everything."""
    return (tokens.scale * losses.values).sum()

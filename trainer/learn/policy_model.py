"""A causal language model that answers with log-probabilities of given tokens instead of logits."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from claw_r1.trainer.errors import ModelInvalid
from claw_r1.trainer.learn.attention import TrieAttention
from claw_r1.trainer.learn.logprobs import PLAIN, LogitShape, TokenScores, score
from claw_r1.trainer.ranks.zero3 import whole_when_called

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TokenScorer(nn.Module):
    """The head of a model. A module that has the head's own weights as its own, so that ZeRO 3 brings them
    when it runs."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.weight = head.weight
        self.bias = head.bias
        self.shape = PLAIN

    def forward(self, hidden: Tensor, ids: Tensor, temperatures: Tensor, entropy_gradient: bool) -> TokenScores:
        """See `head.score`."""
        return score(
            hidden,
            self.weight,
            ids,
            temperatures,
            bias=self.bias,
            shape=self.shape,
            entropy_gradient=entropy_gradient,
        )


class PolicyModel(nn.Module):
    """Around a model of transformers, as `causal`. DeepSpeed wraps this one, so that its forward pass ends in
    vectors [T]."""

    def __init__(self, causal: "PreTrainedModel") -> None:
        """Raises ModelInvalid where the model's own logits are not those of a linear head, scaled and capped, or are others in
        training."""
        super().__init__()
        head = causal.get_output_embeddings()
        if not isinstance(head, nn.Linear):
            raise ModelInvalid(f"{_name(causal)}: its head is no linear layer, so tokens cannot be scored in parts")
        self.causal = causal
        self.vocabulary: int = causal.get_input_embeddings().num_embeddings
        self.scorer = TokenScorer(head)
        with whole_when_called(causal):
            check_same_in_training(causal)
            self.scorer.shape = shape_of(causal, head)

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        attention: TrieAttention | None,
        at: Tensor,
        targets: Tensor,
        temperatures: Tensor,
        entropy_gradient: bool = False,
    ) -> TokenScores:
        """ids, positions [rows, n]; at [T]: into the hidden states as [rows * n, width]; targets, temperatures [T]."""
        hidden = hidden_states(self.causal, ids, positions, attention)
        chosen = hidden.reshape(-1, hidden.shape[-1])[at]
        scores: TokenScores = self.scorer(chosen, targets, temperatures, entropy_gradient)
        return scores


def hidden_states(causal: "PreTrainedModel", ids: Tensor, positions: Tensor, attention: TrieAttention | None) -> Tensor:
    """[rows, n, width], before the head. Raises RuntimeError when the model leaves out the attention of a tree."""
    trie = {} if attention is None else {"trie": attention}
    hidden: Tensor = causal.base_model(input_ids=ids, position_ids=positions, use_cache=False, **trie).last_hidden_state
    if attention is not None and not attention.layers:
        raise RuntimeError("this model does not pass on what its attention is given; set layout: rows")
    return hidden


@torch.no_grad()
def shape_of(causal: "PreTrainedModel", head: nn.Linear) -> LogitShape:
    """Returns the transformation that the model applies to its head's output, by its own logits on a few tokens. Raises
    ModelInvalid."""
    ids = _few_tokens(causal)
    own = causal(input_ids=ids, use_cache=False).logits.float()
    output = head(causal.base_model(input_ids=ids, use_cache=False).last_hidden_state).float()
    config = causal.config.get_text_config()
    cap = getattr(config, "final_logit_softcapping", None)
    factors = (getattr(config, name, None) or 1.0 for name in ("logit_scale", "logits_scaling", "output_multiplier"))
    for scale in (1.0, *(each for factor in factors for each in (factor, 1 / factor))):
        shape = LogitShape(scale, cap)
        if _close(shape(output), own):
            return shape
    raise ModelInvalid(
        f"{_name(causal)}: its logits are not its head's output, scaled by what config.json names and capped; it cannot be trained"
    )


@torch.no_grad()
def check_same_in_training(causal: "PreTrainedModel") -> None:
    """Raises ModelInvalid where the model draws numbers in training: the engine has no dropout, and the ratio compares the
    two."""
    ids, before = _few_tokens(causal), causal.training
    sampled, trained = (
        causal.train(training)(input_ids=ids, use_cache=False).logits.float() for training in (False, True)
    )
    causal.train(before)
    if not _close(trained, sampled):
        raise ModelInvalid(
            f"{_name(causal)}: {type(causal).__name__} has other logits in training, by a dropout or a noise of its own; it cannot be trained"
        )


def _few_tokens(causal: "PreTrainedModel") -> Tensor:
    return torch.arange(4, device=causal.get_output_embeddings().weight.device)[None]


def _close(one: Tensor, other: Tensor) -> bool:
    """Up to what bf16 and the order of sums on a GPU do."""
    return bool(torch.allclose(one, other, rtol=0.02, atol=0.02 * float(other.abs().max())))


def _name(causal: "PreTrainedModel") -> str:
    return f"a model of type {causal.config.model_type}"

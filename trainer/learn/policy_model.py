"""A causal language model that answers with log-probabilities of given tokens instead of logits."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from trainer.learn.head import TokenScores, score

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class PolicyModel(nn.Module):
    """Around a model of transformers, as `causal`. DeepSpeed wraps this one, so that its forward pass ends in vectors [T]."""

    def __init__(self, causal: "PreTrainedModel") -> None:
        super().__init__()
        self.causal = causal
        self.vocabulary: int = causal.get_input_embeddings().num_embeddings

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        attention: object | None,
        at: Tensor,
        targets: Tensor,
        temperatures: Tensor,
        entropy_gradient: bool = False,
    ) -> TokenScores:
        """ids, positions [rows, n]; at [T]: into the hidden states as [rows * n, width]; targets, temperatures [T]."""
        hidden = self.causal.base_model(
            input_ids=ids, position_ids=positions, attention_mask=attention, use_cache=False
        ).last_hidden_state
        chosen = hidden.reshape(-1, hidden.shape[-1])[at]
        head = self.causal.get_output_embeddings()
        return score(head, chosen, targets, temperatures, vocabulary=self.vocabulary, entropy_gradient=entropy_gradient)

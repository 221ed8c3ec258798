"""A causal language model that answers with log-probabilities of given tokens instead of logits."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from trainer.learn.attention import TrieAttention
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
        attention: TrieAttention | None,
        at: Tensor,
        targets: Tensor,
        temperatures: Tensor,
        entropy_gradient: bool = False,
    ) -> TokenScores:
        """ids, positions [rows, n]; at [T]: into the hidden states as [rows * n, width]; targets, temperatures [T]."""
        hidden = hidden_states(self.causal, ids, positions, attention)
        chosen = hidden.reshape(-1, hidden.shape[-1])[at]
        head = self.causal.get_output_embeddings()
        return score(head, chosen, targets, temperatures, vocabulary=self.vocabulary, entropy_gradient=entropy_gradient)


def hidden_states(causal: "PreTrainedModel", ids: Tensor, positions: Tensor, attention: TrieAttention | None) -> Tensor:
    """[rows, n, width], before the head. Raises RuntimeError when the model leaves out the attention of a tree."""
    trie = {} if attention is None else {"trie": attention}
    hidden: Tensor = causal.base_model(input_ids=ids, position_ids=positions, use_cache=False, **trie).last_hidden_state
    if attention is not None and not attention.layers:
        raise RuntimeError("this model does not pass on what its attention is given; set layout: rows")
    return hidden

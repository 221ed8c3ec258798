"""The model that parts of `bench.trainer` train: two layers of a Qwen3, made in code."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM


def two_layers(width: int, vocabulary: int) -> Qwen3ForCausalLM:
    """Always the same weights; heads of 64, half as many for keys. width: a multiple of 128."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=2,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 128,
        head_dim=64,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config)

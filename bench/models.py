"""Models made in code: shapes, no downloads. It imports nothing that a machine with torch alone has not."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of a Qwen3."""

    vocabulary: int
    width: int = 512
    layers: int = 12
    heads: int = 8
    kv_heads: int = 4
    head_width: int = 64
    mlp_width: int = 1536
    tied: bool = True
    half: bool = False
    """In bf16, else in fp32."""


SMALL = Shape(vocabulary=512, width=128, layers=2, heads=4, kv_heads=2, head_width=32, mlp_width=384)
QWEN3_06B = Shape(
    vocabulary=151_936, width=1024, layers=28, heads=16, kv_heads=8, head_width=128, mlp_width=3072, half=True
)


def build(shape: Shape, seed: int = 0) -> Any:  # Any: a model of transformers
    """Random weights, the same for a seed."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.mlp_width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_width,
        max_position_embeddings=32_768,
        tie_word_embeddings=shape.tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    return model.bfloat16() if shape.half else model


def make(directory: Path, shape: Shape, seed: int = 0) -> Path:
    """The same in Hugging Face's format."""
    build(shape, seed).save_pretrained(directory)
    return directory

"""A tiny Qwen3 directory, made in code."""

from pathlib import Path

VOCABULARY = 32


def make_model(directory: Path, *, seed: int = 0, tied: bool = True) -> Path:
    """Two layers, about 12 thousand parameters, with stand-ins for tokenizer files."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        initializer_range=0.2,
        attention_dropout=0.1,
    )
    Qwen3ForCausalLM(config).save_pretrained(directory)
    (directory / "tokenizer.json").write_text('{"stand-in": true}')
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    return directory

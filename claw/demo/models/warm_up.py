"""Supervised warm-up of a randomly initialised Qwen3: from noise to the format, in seconds on one CPU thread.

Invariant: the caller's random state and thread count are as before, and the weights depend on (seed, recipe) only: one
thread, because the order in which threads add floats differs from machine to machine.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

if TYPE_CHECKING:
    from claw_r1.claw.demo.models.tiny_model import Demonstration, Recipe


def warmed_up_model(
    tokenizer: PreTrainedTokenizerFast, seed: int, recipe: "Recipe", demonstration: "Demonstration"
) -> Qwen3ForCausalLM:
    """A float32 model that speaks the format and copies arguments; each id of its vocabulary decodes."""
    with reproducible(seed):
        model = _random_model(tokenizer, recipe)
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
        # Without the decay the last steps move the verbs' shares at random, and greedy play may score by chance.
        decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, recipe.learning_rate_end_share, recipe.steps)
        rng = random.Random(1000 + seed)
        for _ in range(recipe.steps):
            loss = _loss(model, *_batch(tokenizer, [demonstration(rng) for _ in range(recipe.batch_dialogues)]))
            loss.backward()
            optimizer.step()
            decay.step()
            optimizer.zero_grad()
    return model.eval()


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """torch's random state from the seed, and one thread; afterwards both are as before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def qwen3_config(tokenizer: PreTrainedTokenizerFast, recipe: "Recipe") -> Qwen3Config:
    """The shape of a recipe's models."""
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=3 * recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        head_dim=recipe.head_dim,
        max_position_embeddings=recipe.positions_max,
        tie_word_embeddings=recipe.tied,
        initializer_range=recipe.init_range,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _random_model(tokenizer: PreTrainedTokenizerFast, recipe: "Recipe") -> Qwen3ForCausalLM:
    model = Qwen3ForCausalLM(qwen3_config(tokenizer, recipe)).to(torch.float32)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def _batch(
    tokenizer: PreTrainedTokenizerFast, conversations: list[list[dict[str, str]]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and loss mask, both (dialogues, longest), padded right; the mask covers the assistant's ids with their end."""
    rows = tokenizer.apply_chat_template(conversations, tokenize=True, return_dict=False)
    longest = max(len(row) for row in rows)
    ids = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows])
    return ids, torch.tensor([_assistant_mask(tokenizer, row) + [0.0] * (longest - len(row)) for row in rows])


def _assistant_mask(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> list[float]:
    """1 for each id that the assistant says: after its mark, up to and with the end."""
    mark = tokenizer.convert_tokens_to_ids("<|assistant|>")
    mask, speaking = [], False
    for token in ids:
        mask.append(float(speaking))
        speaking = token == mark or (speaking and token != tokenizer.eos_token_id)
    return mask


def _loss(model: Qwen3ForCausalLM, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean negative log-probability of the masked tokens. Padding stands right of all of them, so it needs no mask."""
    logits = model(input_ids=ids).logits[:, :-1]
    logprobs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    targets = mask[:, 1:]
    return -(logprobs * targets).sum() / targets.sum()

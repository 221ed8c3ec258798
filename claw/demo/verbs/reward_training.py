"""Training of the tiny reward model: a label at the end of each reply, so that one model judges episodes and
their steps."""

import random

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import PreTrainedTokenizerFast, Qwen3ForSequenceClassification

from claw_r1.claw.demo.models.tiny_model import Recipe
from claw_r1.claw.demo.models.warm_up import qwen3_config, reproducible
from claw_r1.claw.demo.verbs.reward_model import LabelledEpisode, labelled_episode


def trained_reward_model(
    tokenizer: PreTrainedTokenizerFast, seed: int, recipe: Recipe
) -> Qwen3ForSequenceClassification:
    """A float32 model of one label, trained on episodes that are drawn as it goes."""
    with reproducible(seed):
        config = qwen3_config(tokenizer, recipe)
        config.num_labels = 1
        model = Qwen3ForSequenceClassification(config).to(torch.float32)
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
        decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, recipe.learning_rate_end_share, recipe.steps)
        rng = random.Random(2000 + seed)
        for _ in range(recipe.steps):
            loss = _loss(model, *_batch(tokenizer, [labelled_episode(rng) for _ in range(recipe.batch_dialogues)]))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            decay.step()
            optimizer.zero_grad()
    return model.eval()


def _batch(
    tokenizer: PreTrainedTokenizerFast, episodes: list[LabelledEpisode]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, labels, and where these count, all (episodes, longest), padded right: the end of each reply, as the template writes it."""
    rows = tokenizer.apply_chat_template([episode.messages for episode in episodes], tokenize=True, return_dict=False)
    shape = len(rows), max(len(row) for row in rows)
    ids = torch.full(shape, tokenizer.pad_token_id)
    labels, counts = torch.zeros(shape), torch.zeros(shape)
    for number, (row, episode) in enumerate(zip(rows, episodes, strict=True)):
        ids[number, : len(row)] = torch.tensor(row)
        ends = [place for place, token in enumerate(row) if token == tokenizer.eos_token_id][1::2]
        labels[number, ends] = torch.tensor(episode.faultless, dtype=torch.float32)
        counts[number, ends] = 1.0
    return ids, labels, counts


def _loss(
    model: Qwen3ForSequenceClassification, ids: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    """Mean cross-entropy at the ends of replies. Padding stands right of all of them, so it needs no mask."""
    logits = model.score(model.model(input_ids=ids).last_hidden_state).squeeze(-1)
    return (binary_cross_entropy_with_logits(logits, labels, reduction="none") * counts).sum() / counts.sum()

"""GRPO written out in plain torch, as a tutorial has it: what the trainer's learner, and the whole loop, are compared with."""

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.examples import example
from bench.in_process import NEW_TOKENS_MAX, PlayedCall, PlayedEpisode, Player
from bench.verbs import GROUPS, MEMBERS, settings, verbs
from claw_r1.trainer.learn.examples import Example, LearnerBatch
from claw_r1.trainer.settings import TrainerSettings

UNCOUNTED = 2
"""The first batches, which everybody begins slowly."""


class PlainLearner:
    """One AdamW step per batch: PPO's clipped loss, mean over the trained tokens, the whole batch in one pass."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._settings = settings
        self.model = AutoModelForCausalLM.from_pretrained(settings.model_dir, dtype=torch.float32)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
        self.vocabulary = self.model.config.vocab_size

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The weights as they are now."""
        yield from self.model.named_parameters()

    def train(self, batch: LearnerBatch) -> dict[str, float]:
        """Rows padded on the right; nothing is cut, nothing left out."""
        low, high = 1 - self._settings.clip_low, 1 + self._settings.clip_high
        longest = max(map(len, batch.examples))
        ids = torch.zeros(len(batch.examples), longest, dtype=torch.long)
        old, advantages, mask = (torch.zeros(len(batch.examples), longest) for _ in range(3))
        for row, each in enumerate(batch.examples):
            at = torch.from_numpy(each.at)
            ids[row, : len(each)] = torch.from_numpy(each.ids.astype("int64"))
            old[row, at] = torch.from_numpy(each.behaviour)
            advantages[row, at] = torch.from_numpy(each.advantages)
            mask[row, at] = 1.0
        logits = self.model(input_ids=ids).logits[:, :-1]
        logprobs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        ratio = (logprobs - old[:, 1:]).exp()
        gain = torch.minimum(ratio * advantages[:, 1:], ratio.clamp(low, high) * advantages[:, 1:])
        loss = -(gain * mask[:, 1:]).sum() / mask[:, 1:].sum()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._settings.grad_clip)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return {"loss": float(loss), "grad_norm": float(norm)}


class Generating(Player):
    """Samples by transformers' `generate`, with the weights that the learner trains."""

    def __init__(self, model: Any, model_dir: Path) -> None:  # Any: a transformers model of any kind
        self._model, self._tokenizer = model, AutoTokenizer.from_pretrained(model_dir)

    @torch.inference_mode()
    def _sample(self, prompts: Sequence[list[int]]) -> list[tuple[list[int], list[float]]]:
        longest, end = max(map(len, prompts)), self._tokenizer.eos_token_id
        output = self._model.generate(
            torch.tensor([[end] * (longest - len(prompt)) + prompt for prompt in prompts]),
            attention_mask=torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=NEW_TOKENS_MAX,
            pad_token_id=end,
            eos_token_id=end,
            return_dict_in_generate=True,
            output_logits=True,
        )
        ids = output.sequences[:, longest:]
        logprobs = torch.stack(output.logits, 1).float().log_softmax(-1).gather(-1, ids[..., None])[..., 0]
        lengths = [row.index(end) + 1 if end in row else len(row) for row in ids.tolist()]
        return [(ids[row, :n].tolist(), logprobs[row, :n].tolist()) for row, n in enumerate(lengths)]


class PlainGrpo(PlainLearner):
    """A batch after another in this process."""

    def play_and_train(self, player: Player, dice: random.Random) -> float:
        """One batch; its mean return."""
        examples: list[Example] = []
        earned: list[float] = []
        starts = [verbs(dice) for _ in range(GROUPS)]
        episodes = [PlayedEpisode(start()) for start in starts for _ in range(MEMBERS)]
        player.play(episodes)
        for first in range(0, len(episodes), MEMBERS):
            members = episodes[first : first + MEMBERS]
            returns = [episode.earned for episode in members]
            mean, deviation = fmean(returns), pstdev(returns)
            for episode, value in zip(members, returns, strict=True):
                examples += rows_of(episode.calls, (value - mean) / (deviation + 1e-6))
            earned += returns
        self.train(LearnerBatch(examples, version=0, seed=0, group_sizes=(MEMBERS,) * GROUPS))
        return fmean(earned)


def rows_of(calls: Sequence[PlayedCall], advantage: float) -> list[Example]:
    """A sequence for each chain of calls that extend each other."""
    rows: list[tuple[list[int], list[int], list[float]]] = []
    for call in calls:
        extends = bool(rows) and call.prompt[: len(rows[-1][0])] == rows[-1][0]
        _, at, behaviour = rows.pop() if extends else ([], [], [])
        at = [*at, *range(len(call.prompt), len(call.prompt) + len(call.ids))]
        rows.append(([*call.prompt, *call.ids], at, [*behaviour, *call.logprobs]))
    return [example(ids, at, advantage, behaviour) for ids, at, behaviour in rows]


def in_process(batches: int, seed: int) -> tuple[float, float, float]:
    """CPU seconds and seconds per batch, and the mean return of the last five."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    with settings(seed) as chosen:
        learner, dice = PlainGrpo(chosen), random.Random(seed)
        player = Generating(learner.model, chosen.model_dir)
        rewards = [learner.play_and_train(player, dice) for _ in range(UNCOUNTED)]
        began, cpu = time.monotonic(), time.process_time()
        rewards += [learner.play_and_train(player, dice) for _ in range(batches)]
    return (time.process_time() - cpu) / batches, (time.monotonic() - began) / batches, fmean(rewards[-5:])

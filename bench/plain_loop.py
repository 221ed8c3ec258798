"""GRPO written out in plain torch, as a tutorial has it: what the trainer's learner is compared with. Shares no code with it
but the type of its input."""

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from claw_r1.trainer.learn.examples import LearnerBatch
from claw_r1.trainer.settings import TrainerSettings


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
        for row, example in enumerate(batch.examples):
            at = torch.from_numpy(example.at)
            ids[row, : len(example)] = torch.from_numpy(example.ids.astype("int64"))
            old[row, at] = torch.from_numpy(example.behaviour)
            advantages[row, at] = torch.from_numpy(example.advantages)
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

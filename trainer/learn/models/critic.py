"""The critic estimates the value of an episode's rest at each state that predicts a trained token.

Invariant: advantages of a batch are a function of its plan and of the critic as it was before the batch, computed in float64
over the whole batch; so a replay from a checkpoint repeats them to the bit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from claw_r1.trainer.algorithms.gae import gae, whitened
from claw_r1.trainer.algorithms.values import explained_variance, value_loss
from claw_r1.trainer.config.critic import CriticSettings
from claw_r1.trainer.config.directories import refuse_other_vocabulary
from claw_r1.trainer.learn import model as models
from claw_r1.trainer.learn.attention import LayoutWish, TrieAttention, layout_of
from claw_r1.trainer.learn.examples import Example, by_trajectory, column, with_column
from claw_r1.trainer.learn.layouts import MicroBatch, lay_out
from claw_r1.trainer.learn.policy_model import hidden_states
from claw_r1.trainer.learn.stepping import SteppedModel, StepSettings
from claw_r1.trainer.ranks.data_sharding import over_ranks, per_token, share_of_this_rank
from claw_r1.weights.digests import SHA256
from claw_r1.weights.manifest import WeightsManifest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FOLDER = "critic"
"""The folder of a checkpoint: where the critic's part lies."""
FIRST_BATCH = "first_batch"
"""The name in the state of that part; checkpoints of earlier versions have none: 0."""


class ValueHead(nn.Linear):
    """width -> 1, zero at first, in float32 whatever the model is: bfloat16 has three
    digits, a value needs more."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__(width, 1, dtype=dtype)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """[T, width] -> [T, 1]."""
        return nn.functional.linear(hidden.float(), self.weight.float(), self.bias.float())


class CriticModel(nn.Module):
    """The trunk of a causal language model with a value head in the place of its own."""

    def __init__(self, causal: "PreTrainedModel", head: Mapping[str, Tensor] | None = None) -> None:
        """head: `weight` and perhaps `bias` to start from; None: zero."""
        super().__init__()
        self.vocabulary: int = causal.get_input_embeddings().num_embeddings
        self.trunk = causal.base_model  # its own head is no parameter of this module, so nobody keeps state for it
        self.value = ValueHead(causal.config.get_text_config().hidden_size, causal.dtype)
        self.value.load_state_dict(dict(head or {}), strict=False)

    def forward(self, ids: Tensor, positions: Tensor, attention: TrieAttention | None, at: Tensor) -> Tensor:
        """Values [T], float32. ids, positions [rows, n]; at [T]: into the hidden states as [rows * n, width]."""
        hidden = hidden_states(self.trunk, ids, positions, attention)
        values: Tensor = self.value(hidden.reshape(-1, hidden.shape[-1])[at]).squeeze(-1)
        return values


def scalar_head(directory: Path) -> dict[str, Tensor]:
    """`weight` [1, width] and `bias` [1] of a model that was saved with one score (as transformers' ForTokenClassification and
    ForSequenceClassification with one label have it); empty: it was saved as something else."""
    from safetensors import safe_open

    tensors: dict[str, Tensor] = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            names = {name for name in ("score.weight", "score.bias") if name in file.keys()}  # noqa: SIM118  # a safetensors file cannot be iterated
            tensors |= {name.removeprefix("score."): file.get_tensor(name) for name in names}
    return tensors if "weight" in tensors and len(tensors["weight"]) == 1 else {}


class Critic:
    """A critic under training, with an optimizer of its own. Belongs to one thread."""

    def __init__(
        self,
        model_dir: Path,
        settings: CriticSettings,
        stepping: StepSettings,
        *,
        device: torch.device,
        vocabulary: int,
        micro_batch_tokens_max: int,
        layout: LayoutWish = "auto",
    ) -> None:
        """vocabulary: the policy's. Raises ModelInvalid where it is another one, or `model_dir` is no model."""
        setting = "model_dir" if settings.model_dir is None else "critic.model_dir"
        causal = models.load(model_dir, stepping.precision, stepping.partition, setting=setting)
        if stepping.partition is None:
            causal.to(device)  # before a layout is tried on it
        wish = layout_of(causal, layout, device)
        self._lay_out = partial(lay_out, tokens_max=micro_batch_tokens_max, wish=wish, share=share_of_this_rank())
        if stepping.optimizer.gradient_checkpointing:
            causal.gradient_checkpointing_enable({"use_reentrant": False})
        model = CriticModel(causal, scalar_head(model_dir))
        refuse_other_vocabulary(setting, model_dir, model.vocabulary, vocabulary)
        self._model = SteppedModel(model, stepping)
        self._settings = settings
        self._device = device
        self._first_batch: int | None = 0
        """None: the next one."""

    def begin(self) -> None:
        """The run's batches so far had no critic: the next one is its first."""
        self._first_batch = None

    def warms_up(self, sequence: int) -> bool:
        """Returns whether the critic alone is trained on the batch of this number, which is the run's next."""
        if self._first_batch is None:
            self._first_batch = sequence
        return sequence < self._first_batch + self._settings.warmup_batches

    def judged(self, examples: Sequence[Example]) -> tuple[list[Example], dict[str, float]]:
        """The same examples with `values`, `returns` and the advantages that follow from them; metrics of the values."""
        values = per_token(self._lay_out(examples), examples, self._device, self._values).astype(np.float64)
        advantages = advantages_of(examples, values, self._settings)
        returns = values + advantages
        judged = with_column(with_column(examples, "values", values), "returns", returns)
        judged = with_column(judged, "advantages", whitened(advantages) if self._settings.whiten else advantages)
        metrics = {"value_mean": float(values.mean()), "return_mean": float(returns.mean())}
        explained = explained_variance(values, returns)
        return judged, metrics if math.isnan(explained) else {**metrics, "explained_variance": explained}

    def train(
        self,
        examples: Sequence[Example],
        *,
        seed: int,
        rate_factor: float = 1.0,
        before_micro_batch: Callable[[], None] = lambda: None,
    ) -> dict[str, float]:
        """One optimizer step towards the returns over all trained tokens, each of the same weight; metrics."""
        rate = self._model.begin(seed, rate_factor)
        count = sum(len(example.at) for example in examples)
        layout = self._lay_out(examples)
        loss, clipped = 0.0, 0.0
        for number, batch in enumerate(layout.micro_batches(self._device), 1):
            before_micro_batch()
            tokens = batch.tokens
            assert tokens.returns is not None and tokens.values is not None  # noqa: PT018  # `judged` gave them
            values = self._values(batch)
            losses = value_loss(values, tokens.returns, tokens.values, clip=self._settings.clip)
            own = number <= layout.own  # else another rank has a micro-batch more
            mean = own * losses.values.sum() / count
            loss, clipped = loss + float(mean.detach()), clipped + own * float(losses.clipped.sum()) / count
            self._model.backward(mean, values, last=number == len(layout.parts))
        step, parts = self._model.step(), over_ranks((loss, clipped))
        return {
            "critic_learning_rate": rate,
            "value_loss": sum(part for part, _ in parts),
            "value_clip_share": sum(part for _, part in parts),
            "critic_grad_norm": step.grad_norm,
            "critic_step_skipped": float(step.skipped),
        }

    def digest(self) -> str:
        """sha256 (hex) over the bytes of all parameters in order: runs of earlier versions are compared by it. Reads every byte."""
        return WeightsManifest.of(self._model.named_parameters(), SHA256).digest

    def save(self, directory: Path) -> Callable[[], None]:
        """Everything that training resumes from, beside the policy's; see `Learner.save`."""
        return self._model.save(directory / FOLDER, {FIRST_BATCH: self._first_batch})

    def load(self, directory: Path) -> None:
        """The inverse of `save`. Raises CheckpointInvalid."""
        self._first_batch = self._model.load(directory / FOLDER).get(FIRST_BATCH, 0)

    def _values(self, batch: MicroBatch) -> Tensor:
        values: Tensor = self._model(batch.ids, batch.positions, batch.attention, batch.tokens.at)
        return values


def advantages_of(
    examples: Sequence[Example], values: np.ndarray[Any, np.dtype[np.float64]], settings: CriticSettings
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[T] float64, as `values`: generalised advantage estimation along the trained tokens of each trajectory, from rewards
    and values at them. Context between them is skipped: it is no action."""
    rewards, responses = column(examples, "rewards").astype(np.float64), column(examples, "responses")
    advantages = np.zeros_like(values)
    for _, tokens in by_trajectory(examples):
        advantages[tokens] = gae(
            rewards[tokens].tolist(),
            values[tokens].tolist(),
            gamma=settings.gamma,
            lam=settings.lam,
            turns=responses[tokens].tolist(),
            turn_gamma=settings.turn_gamma,
        )
    return advantages

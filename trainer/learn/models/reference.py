"""The frozen model that the policy is held near: log-probabilities once per batch, and
what the distance takes off rewards.

A policy with adapters is its own reference, the adapters switched off, unless another
model is named.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from claw_r1.trainer.algorithms.divergence import DIVERGENCES
from claw_r1.trainer.config.directories import refuse_other_vocabulary
from claw_r1.trainer.config.reference import ReferenceSettings
from claw_r1.trainer.learn import model as models
from claw_r1.trainer.learn.attention import LayoutWish, layout_of
from claw_r1.trainer.learn.examples import Example, column, with_column
from claw_r1.trainer.learn.layouts import MicroBatch, lay_out
from claw_r1.trainer.learn.policy_model import PolicyModel
from claw_r1.trainer.ranks.data_sharding import per_token, share_of_this_rank

LogprobsOf = Callable[[Sequence[Example]], NDArray[np.float32]]
"""The log-probability of each trained token of examples, [T].

Each rank calls it with all of them.
"""


class FrozenModel:
    """Never trained, never saved: its directory has it. Whole on every rank."""

    def __init__(
        self,
        model_dir: Path,
        setting: str,
        *,
        device: torch.device,
        precision: models.Precision,
        vocabulary: int,
        micro_batch_tokens_max: int,
        layout: LayoutWish = "auto",
    ) -> None:
        """setting: that of the directory. vocabulary: the policy's.

        Raises ModelInvalid if it has another one, or `model_dir` is no model.
        """
        causal = models.load(model_dir, precision, setting=setting)
        causal.to(device)  # before a layout is tried on it
        wish = layout_of(causal, layout, device)
        self._lay_out = partial(lay_out, tokens_max=micro_batch_tokens_max, wish=wish, share=share_of_this_rank())
        self._model = PolicyModel(causal).eval().requires_grad_(False)
        refuse_other_vocabulary(setting, model_dir, self._model.vocabulary, vocabulary)
        self._device = device

    def logprobs(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """See `LogprobsOf`."""
        return per_token(self._lay_out(examples), examples, self._device, self._scored)

    def _scored(self, batch: MicroBatch) -> Tensor:
        tokens = batch.tokens
        scores = self._model(batch.ids, batch.positions, batch.attention, tokens.at, tokens.ids, tokens.temperatures)
        logprobs: Tensor = scores.logprobs
        return logprobs


class Reference:
    """The policy's measure: the log-probabilities of a frozen model, and the cost
    of distance from them."""

    def __init__(self, logprobs: LogprobsOf, settings: ReferenceSettings) -> None:
        """logprobs: by a model of its own, or by the policy without its adapters."""
        self._logprobs = logprobs
        self._settings = settings

    def compared(self, examples: Sequence[Example]) -> tuple[list[Example], dict[str, float]]:
        """The same examples with `reference`, and with rewards charged where the settings say so; metrics.

        `reference_kl_k1`, `reference_kl_k3`: KL(behaviour || reference), means over the trained tokens.
        """
        scored = with_column(examples, "reference", self._logprobs(examples))
        metrics = {f"reference_kl_{name}": float(divergence(scored, name).mean()) for name in ("k1", "k3")}
        if self._settings.place == "reward":
            scored = charged(scored, self._settings.kl_name, self._settings.coefficient)
        return scored, metrics


def divergence(examples: Sequence[Example], name: str) -> NDArray[np.float32]:
    """[T]: an estimate of KL(behaviour || reference) at each trained token, from what was sampled."""
    behaviour, reference = (torch.from_numpy(column(examples, each)) for each in ("behaviour", "reference"))
    estimates: NDArray[np.float32] = DIVERGENCES[name](behaviour, reference).numpy()
    return estimates


def charged(examples: Sequence[Example], name: str, coefficient: float) -> list[Example]:
    """The same examples with the divergence from the reference taken off the reward of each token (arXiv 2203.02155).

    A token's third weight multiplies it, as it does in the loss.
    """
    cost = coefficient * column(examples, "weights")[:, 2] * divergence(examples, name)
    return with_column(examples, "rewards", column(examples, "rewards") - cost)

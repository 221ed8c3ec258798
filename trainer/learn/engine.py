"""DeepSpeed behind five verbs: train, give tensors, export, save, load.

One process is all there is so far: everything that assumes rank 0 of 1 stands in `join_alone`. To run on several ranks,
replace it by a real rendezvous, hand each rank its share of the micro-batches, scale its loss by the world size
(gradients are averaged over ranks), and let rank 0 alone write events and exports.
"""

import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import structlog
import torch
import torch.distributed as dist
from torch import Tensor

from trainer.errors import CheckpointInvalid, SettingsInvalid
from trainer.learn import deepspeed_config
from trainer.learn import model as models
from trainer.learn.examples import Example
from trainer.learn.head import TokenScores
from trainer.learn.layouts import MicroBatch, TrainedTokens, pack, padded_rows
from trainer.learn.metrics import TokenTotals
from trainer.learn.objective import Objective, ObjectiveLosses, summed
from trainer.learn.policy_model import PolicyModel
from trainer.learn.tensor_names import CheckpointTensors
from trainer.storage import exports
from trainer.storage.state_files import StateFiles
from weights.checkpoint import SHARD_BYTES_MAX
from weights.device import Wish, resolved
from weights.snapshot import WeightsSnapshot

log = structlog.get_logger()

STATE_KEY = "trainer"  # deepspeed merges its own keys into the client state
TAG = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """`precision` None: bf16 on CUDA, else fp32."""

    learning_rate: float
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    zero_stage: int = 0
    device: Wish = "auto"
    precision: models.Precision | None = None
    micro_batch_tokens_max: int = 16_384
    export_shard_bytes_max: int = SHARD_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Step:
    """What one optimizer step saw. `grad_norm` is before clipping. `skipped`: a loss or gradient was not finite."""

    totals: TokenTotals
    grad_norm: float
    micro_batches: int
    skipped: bool = False


class TrainingEngine:
    """A model under training. Belongs to one thread."""

    def __init__(self, model_dir: Path, settings: EngineSettings) -> None:
        """Raises ModelInvalid when `model_dir` is no model, SettingsInvalid when the device is not there."""
        self.device = torch.device(resolved(settings.device, sees_cuda=torch.cuda.is_available))
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise SettingsInvalid("device cuda: torch sees no CUDA here; drop it, or say device: cpu")
        self._settings = settings
        self._model_dir = model_dir
        self.precision: models.Precision = settings.precision or ("bf16" if self.device.type == "cuda" else "fp32")
        self._stage = deepspeed_config.resolved_stage(settings.zero_stage, self.precision)
        if self._stage != settings.zero_stage:
            log.info("zero_stage_raised", zero_stage=self._stage, reason="stage 0 would sum gradients in bf16")
        model = models.load(model_dir, self.precision)
        policy = PolicyModel(model)
        self._causal = policy.causal
        self._tensors = CheckpointTensors(model)
        self._vocabulary = policy.vocabulary
        join_alone(self.device)
        self._engine = _initialize(policy, settings, self._stage, self.precision)
        self._files = StateFiles()
        self._engine.checkpoint_engine.save = self._files.save

    @property
    def vocabulary(self) -> int:
        """How many tokens the model has weights for; their ids are those below."""
        return self._vocabulary

    def train(
        self,
        examples: Sequence[Example],
        objective: Objective,
        *,
        version: int,
        seed: int,
        learning_rate: float | None = None,
        on_policy: bool = True,
        before_micro_batch: Callable[[], None] = lambda: None,
    ) -> Step:
        """One optimizer step over all `examples`, whose scales are set, in micro-batches.

        Where a loss or a gradient is not finite, the step is skipped: weights and optimizer state keep every bit.
        Examples without gradient are not computed, a sample of them aside. version: the one being trained. learning_rate:
        None: that of the settings. on_policy: no step was taken since the weights had that version. before_micro_batch
        may raise to abandon the step; then load a checkpoint before training again.
        """
        torch.manual_seed(seed)
        self._engine.train()
        for group in self._engine.optimizer.param_groups:
            group["lr"] = self._settings.learning_rate if learning_rate is None else learning_rate
        totals, split = TokenTotals(), objective.split(examples, seed)
        about = {"version": version, "on_policy": on_policy}
        with torch.no_grad():
            for part in self._packed(split.silent):
                before_micro_batch()
                totals.add(*self._scored(part, objective), **about, weight=split.weight)
        norm, skipped, healthy = 0.0, False, True
        parts = self._packed(split.taught)
        for number, part in enumerate(parts, 1):
            before_micro_batch()
            tokens, scores, losses = self._scored(part, objective)
            totals.add(tokens, scores, losses, **about)
            loss, last = summed(losses, tokens), number == len(parts)
            healthy = healthy and math.isfinite(loss.detach())
            self._engine.set_gradient_accumulation_boundary(last)
            # A loss that is not finite can have finite gradients; no rank may step on them.
            self._engine.backward(loss if healthy or not last else loss * math.nan)
            if last:
                norm, skipped = self._apply()
            else:
                self._engine.step()
        return Step(totals, norm, len(parts), skipped)

    @torch.no_grad()
    def with_proximal(self, examples: Sequence[Example], before_micro_batch: Callable[[], None]) -> list[Example]:
        """The same examples, in the order in which they are packed, with the log-probabilities of the weights as they are."""
        self._engine.train()
        made: list[Example] = []
        for part in self._packed(examples):
            before_micro_batch()
            logprobs = self._scores(padded_rows(part, self.device)).logprobs.cpu().numpy()
            ends = np.cumsum([len(example.at) for example in part])
            made += [replace(each, proximal=own) for each, own in zip(part, np.split(logprobs, ends[:-1]), strict=True)]
        return made

    def _packed(self, examples: Sequence[Example]) -> list[list[Example]]:
        return pack(examples, self._settings.micro_batch_tokens_max)

    def _scored(self, part: list[Example], objective: Objective) -> tuple[TrainedTokens, TokenScores, ObjectiveLosses]:
        batch = padded_rows(part, self.device)
        scores = self._scores(batch, entropy_gradient=objective.entropy_bonus != 0)
        return batch.tokens, scores, objective.losses(batch.tokens, scores)

    def _scores(self, batch: MicroBatch, *, entropy_gradient: bool = False) -> TokenScores:
        at, ids, temperatures = batch.tokens.at, batch.tokens.ids, batch.tokens.temperatures
        inputs = batch.ids, batch.positions, batch.attention, at, ids, temperatures, entropy_gradient
        scores: TokenScores = self._engine(*inputs)
        return scores

    def _apply(self) -> tuple[float, bool]:
        """The optimizer step, unless a gradient is not finite: gradient norm, and whether the step was skipped.

        DeepSpeed looks for itself from stage 1 on. At stage 0 it would clip by a norm that is no number.
        """
        if self._stage == 0:
            norm = self._own_norm()
            if not math.isfinite(norm):
                self._engine.set_gradient_accumulation_boundary(False)
                self._engine.step()  # counts a micro-batch and steps nothing
                self._engine.zero_grad()
                return norm, True
            self._engine.step()
            return norm, False
        self._engine.step()
        return float(self._engine.get_global_grad_norm()), not self._engine.was_step_applied()

    def _own_norm(self) -> float:
        grads = [p.grad for p in self._engine.module.parameters() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads)) if grads else 0.0

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every saved tensor under its name in the HF checkpoint, whole, always in the same order. A tied head is absent.

        Not copies, and at stage 3 right until the next one is asked for; there every rank must iterate to the end.
        """
        yield from self._tensors(partitioned=self._stage == 3)

    def export(self, snapshot: WeightsSnapshot, target: Path) -> None:
        """A snapshot of the weights as a HF-format directory, whole or not at all. From any thread."""
        exports.write(snapshot, self._causal.config, self._model_dir, target, self._settings.export_shard_bytes_max)

    def save(self, directory: Path, state: dict[str, Any]) -> Callable[[], None]:  # Any: JSON values of the caller
        """Copies everything that training goes on from, and `state`; what it returns writes them, from any thread.

        Every rank writes its part of the directory. Raises OSError, and so does the writing.
        """
        self._engine.save_checkpoint(str(directory), tag=TAG, client_state={STATE_KEY: state})
        return self._files.taken()

    def load(self, directory: Path) -> dict[str, Any]:  # Any: as saved
        """The inverse of `save`: the next steps are those that would have come. Raises CheckpointInvalid."""
        try:
            path, client = self._engine.load_checkpoint(str(directory), tag=TAG)
        except Exception as error:  # deepspeed and torch raise whatever a broken file makes them raise
            raise CheckpointInvalid(f"{directory} cannot be loaded: {type(error).__name__}: {error}") from error
        if path is None or STATE_KEY not in client:
            raise CheckpointInvalid(f"{directory} is no checkpoint of this trainer")
        state: dict[str, Any] = client[STATE_KEY]
        return state


def join_alone(device: torch.device) -> None:
    """Be rank 0 of 1: no launcher, no port. Idempotent. Here and nowhere else."""
    if int(os.environ.get("WORLD_SIZE", "1")) != 1:
        raise SettingsInvalid("the trainer runs in one process so far; unset WORLD_SIZE or start it without a launcher")
    os.environ["LOCAL_RANK"] = "0"  # deepspeed insists
    os.environ["DS_ACCELERATOR"] = device.type  # read when deepspeed is imported; without it, it guesses
    if not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def leave() -> None:
    """Give the process group back, at the end of the process: deepspeed keeps it for every engine to come."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _initialize(model: torch.nn.Module, settings: EngineSettings, stage: int, precision: str) -> Any:  # Any: untyped
    import deepspeed

    _quiet(deepspeed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    config = deepspeed_config.config_of(zero_stage=stage, precision=precision, grad_clip=settings.grad_clip)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def _quiet(deepspeed: Any) -> None:  # Any: deepspeed is untyped
    """Logs to stderr; no compiler run (47 s, or a hang on a stale lock) for an operator that training never calls."""
    compatible = getattr(deepspeed.ops, "__compatible_ops__", {})
    compatible["deepspeed_shm_comm"] = False
    for name in ("DeepSpeed", "deepspeed"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.WARNING)
        for handler in logger.handlers:
            if type(handler) is logging.StreamHandler:  # its own, and none that somebody else attached
                handler.setStream(sys.stderr)

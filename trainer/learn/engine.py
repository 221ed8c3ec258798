"""DeepSpeed behind five verbs: train, give tensors, export, save, load.

With several ranks (trainer/ranks) each calls the same verbs with the same arguments. A rank trains its share of the
examples, its loss scaled by the number of ranks, since DeepSpeed averages gradients over them; totals are summed.
"""

import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import torch
import torch.distributed as dist
from torch import Tensor

from trainer.errors import CheckpointInvalid, SettingsInvalid
from trainer.learn import deepspeed_config
from trainer.learn import model as models
from trainer.learn.dealing import micro_batches, nothing
from trainer.learn.examples import Example
from trainer.learn.layouts import MicroBatch, padded_rows
from trainer.learn.metrics import TokenTotals
from trainer.learn.objective import Objective, summed
from trainer.learn.policy_model import PolicyModel
from trainer.learn.tensor_names import CheckpointTensors
from trainer.storage import exports
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
        before_micro_batch: Callable[[], None] = lambda: None,
    ) -> Step:
        """One optimizer step over all `examples`, whose scales are set, in micro-batches.

        Where a loss or a gradient is not finite, the step is skipped: weights and optimizer state keep every bit.
        version: the one being trained; its own tokens give the log-probability gap. before_micro_batch may raise to
        abandon the step; then load a checkpoint before training again.
        """
        torch.manual_seed(seed)
        packed = micro_batches(
            examples, self._settings.micro_batch_tokens_max, rank=dist.get_rank(), ranks=dist.get_world_size()
        )
        totals, outcome, healthy = TokenTotals(), (0.0, False), True
        self._engine.train()
        for index, part in enumerate(packed):
            before_micro_batch()
            last = index == len(packed) - 1
            counted = totals if part else TokenTotals()
            loss = self._loss(padded_rows(part or [nothing()], self.device), objective, version, counted)
            healthy = healthy and math.isfinite(loss.detach())
            self._engine.set_gradient_accumulation_boundary(last)
            # A loss that is not finite can have finite gradients; no rank may step on them.
            self._engine.backward(loss if healthy or not last else loss * math.nan)
            if last:
                outcome = self._apply()
            else:
                self._engine.step()
        norm, skipped = outcome
        return Step(_over_ranks(totals), norm, len(packed), skipped)

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

    def _loss(self, batch: MicroBatch, objective: Objective, version: int, totals: TokenTotals) -> Tensor:
        tokens = batch.tokens
        scores = self._engine(batch.ids, batch.positions, batch.attention, tokens.at, tokens.ids, tokens.temperatures)
        losses = objective.losses(tokens, scores)
        totals.add(
            losses=losses.values.detach(),
            clipped=losses.clipped,
            entropy=scores.entropy.detach(),
            logprobs=scores.logprobs.detach(),
            behaviour=tokens.behaviour,
            current=tokens.versions == version,
        )
        return summed(losses, tokens) * dist.get_world_size()

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

    def save(self, directory: Path, state: dict[str, Any]) -> None:  # Any: JSON values of the caller
        """Everything that training goes on from, and `state`, into a directory."""
        self._engine.save_checkpoint(str(directory), tag=TAG, client_state={STATE_KEY: state})

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
    """Be rank 0 of 1, unless this process joined others (trainer/ranks): no launcher, no port. Idempotent."""
    if dist.is_initialized():
        return
    os.environ["LOCAL_RANK"] = "0"  # deepspeed insists
    os.environ["DS_ACCELERATOR"] = device.type  # read when deepspeed is imported; without it, it guesses
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def leave() -> None:
    """Give the process group back, at the end of the process: deepspeed keeps it for every engine to come."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _over_ranks(totals: TokenTotals) -> TokenTotals:
    if dist.get_world_size() == 1:
        return totals
    parts: list[Any] = [None] * dist.get_world_size()  # Any: torch's signature
    dist.all_gather_object(parts, totals)
    return TokenTotals.of(parts)


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

"""The policy under training: trains, gives log-probabilities and tensors, exports, saves and loads.

With several ranks (trainer/ranks) each calls the same methods with the same arguments. A rank trains its share of the
examples, its loss scaled by the number of ranks, since DeepSpeed averages gradients over them; totals are summed.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from claw_r1.trainer.config.lora import LoraSettings
from claw_r1.trainer.config.optimizer import OptimizerSettings
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.trainer.learn import attention, deepspeed_config
from claw_r1.trainer.learn import model as models
from claw_r1.trainer.learn.examples import Example, Float32s, with_column
from claw_r1.trainer.learn.layouts import Layout, MicroBatch, TrainedTokens, lay_out
from claw_r1.trainer.learn.logprobs import TokenScores
from claw_r1.trainer.learn.metrics import TokenTotals, merged
from claw_r1.trainer.learn.models.lora import LoraAdapter
from claw_r1.trainer.learn.objective import Objective, ObjectiveLosses, summed
from claw_r1.trainer.learn.policy_model import PolicyModel
from claw_r1.trainer.learn.stepping import Applied, SteppedModel, StepSettings
from claw_r1.trainer.learn.tensor_names import CheckpointTensors, whole
from claw_r1.trainer.ranks.data_sharding import over_ranks, per_token, share_of_this_rank
from claw_r1.trainer.storage import exports
from claw_r1.weights.checkpoint import SHARD_BYTES_MAX
from claw_r1.weights.device import Wish, resolved
from claw_r1.weights.snapshot import WeightsSnapshot

log = logging.getLogger(__name__)  # not structlog: a GPU machine of `bench.gpu_check` has torch and little else


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """`precision` None: bf16 on CUDA, else fp32. `seed`: of the adapters, where there are any."""

    learning_rate: float
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    zero_stage: int = 0
    device: Wish = "auto"
    precision: models.Precision | None = None
    micro_batch_tokens_max: int = 16_384
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    export_shard_bytes_max: int = SHARD_BYTES_MAX
    layout: attention.LayoutWish = "auto"
    lora: LoraSettings = field(default_factory=LoraSettings)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The figures of one optimizer step. `grad_norm` is before clipping. `skipped`: a loss or
    gradient was not finite."""

    totals: TokenTotals
    grad_norm: float
    micro_batches: int
    tokens_computed: int
    learning_rate: float
    skipped: bool = False


class TrainingEngine:
    """A model under training. Belongs to one thread."""

    def __init__(self, model_dir: Path, settings: EngineSettings) -> None:
        """Raises ModelInvalid when `model_dir` is no model, SettingsInvalid when the device is not there."""
        self.device = torch.device(resolved(settings.device, sees_cuda=torch.cuda.is_available))
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise SettingsInvalid("device cuda: torch sees no CUDA here; drop it, or set device: cpu")
        self._settings = settings
        self._model_dir = model_dir
        self.precision: models.Precision = settings.precision or ("bf16" if self.device.type == "cuda" else "fp32")
        self._stage = deepspeed_config.resolved_stage(settings.zero_stage, self.precision)
        if self._stage != settings.zero_stage:
            log.warning("zero_stage raised to %d: stage 0 would sum gradients in bf16", self._stage)
        self.stepping = StepSettings(
            learning_rate=settings.learning_rate,
            precision=self.precision,
            weight_decay=settings.weight_decay,
            grad_clip=settings.grad_clip,
            zero_stage=self._stage,
            optimizer=settings.optimizer,
        )
        join_alone(self.device)
        model = models.load(model_dir, self.precision, partition=self.stepping.partition)
        self._tensors, self._adapter = CheckpointTensors(model), None
        if settings.lora.rank:
            self._adapter = LoraAdapter.of(model, settings.lora, settings.seed)
            self._tensors.merge(self._adapter)
        if self.stepping.partition is None:
            model.to(self.device)  # before a layout is tried on it
        self._layout = attention.layout_of(model, settings.layout, self.device)
        if settings.optimizer.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        policy = PolicyModel(model)
        self._causal = policy.causal
        self.vocabulary: int = policy.vocabulary
        """How many tokens the model has weights for; their ids are those below."""
        if self._adapter is not None:
            self._adapter.fuse()
        self._share = share_of_this_rank()
        self._model = SteppedModel(policy, self.stepping)

    def train(
        self,
        examples: Sequence[Example],
        objective: Objective,
        *,
        version: int,
        seed: int,
        rate_factor: float = 1.0,
        on_policy: bool = True,
        before_micro_batch: Callable[[], None] = lambda: None,
    ) -> Step:
        """One optimizer step over all `examples`, whose scales are set, in micro-batches.

        Where a loss or a gradient is not finite, the step is skipped: weights and optimizer state keep every bit.
        Examples without gradient are not computed, a sample of them aside. version: the one being trained. rate_factor:
        of the learning rate. on_policy: no step was taken since the weights had that version. before_micro_batch
        may raise to abandon the step; then load a checkpoint before training again.
        """
        rate = self._model.begin(seed, rate_factor)
        totals, split = TokenTotals(), objective.split(examples, seed)
        about = {"version": version, "on_policy": on_policy}
        with torch.no_grad():
            silent = self._laid_out(split.silent)
            for number, micro_batch in enumerate(silent.micro_batches(self.device)):
                before_micro_batch()
                scored = self._scored(micro_batch, objective)
                if number < silent.own:
                    totals.add(*scored, **about, weight=split.weight)
        layout = self._laid_out(split.taught)
        for number, micro_batch in enumerate(layout.micro_batches(self.device), 1):
            before_micro_batch()
            tokens, scores, losses = self._scored(micro_batch, objective)
            if number <= layout.own:
                totals.add(tokens, scores, losses, **about)
            self._model.backward(summed(losses, tokens), scores.logprobs, last=number == len(layout.parts))
        applied = self._model.step() if layout.parts else Applied(0.0, skipped=False)
        return Step(
            merged(over_ranks(totals)),
            applied.grad_norm,
            len(layout.parts),
            layout.tokens_computed,
            rate,
            applied.skipped,
        )

    def with_proximal(self, examples: Sequence[Example], before_micro_batch: Callable[[], None]) -> list[Example]:
        """The same examples with the log-probabilities of the weights as they are."""

        def logprobs(batch: MicroBatch) -> Tensor:
            before_micro_batch()
            return self._scores(batch).logprobs

        return with_column(examples, "proximal", per_token(self._laid_out(examples), examples, self.device, logprobs))

    def base_logprobs(self, examples: Sequence[Example]) -> Float32s:
        """[T]: of each trained token, by the weights without their adapters."""
        assert self._adapter is not None  # whoever asks has set lora.rank
        with self._adapter.off():
            return per_token(
                self._laid_out(examples), examples, self.device, lambda batch: self._scores(batch).logprobs
            )

    def logprobs(self, ids: Sequence[int]) -> Float32s:
        """[n - 1]: of each id but the first, by the weights as they are, at temperature 1. Every rank computes all of them."""
        row = torch.tensor(ids, device=self.device)
        at = torch.arange(len(row) - 1, device=self.device)
        with torch.no_grad():
            scores = self._model(
                row[None], torch.arange(len(row), device=self.device)[None], None, at, row[1:], at * 0 + 1
            )
        logprobs: Float32s = scores.logprobs.cpu().numpy()
        return logprobs

    def _laid_out(self, examples: Sequence[Example]) -> Layout:
        return lay_out(examples, self._settings.micro_batch_tokens_max, self._layout, self._share)

    def _scored(self, batch: MicroBatch, objective: Objective) -> tuple[TrainedTokens, TokenScores, ObjectiveLosses]:
        scores = self._scores(batch, entropy_gradient=objective.entropy_bonus != 0)
        return batch.tokens, scores, objective.losses(batch.tokens, scores)

    def _scores(self, batch: MicroBatch, *, entropy_gradient: bool = False) -> TokenScores:
        at, ids, temperatures = batch.tokens.at, batch.tokens.ids, batch.tokens.temperatures
        inputs = batch.ids, batch.positions, batch.attention, at, ids, temperatures, entropy_gradient
        scores: TokenScores = self._model(*inputs)
        return scores

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every saved tensor under its name in the HF checkpoint, whole, always in the same order, adapters merged.

        A tied head is absent. They are no copies, and at stage 3 right until the next is asked for; there every rank
        iterates to the end.
        """
        yield from self._tensors(partitioned=self._stage == 3)

    @property
    def has_adapter(self) -> bool:
        """Adapters are trained, and not the weights."""
        return self._adapter is not None

    def adapter_tensors(self) -> dict[str, Tensor]:
        """Copies of the adapters' matrices as they are, in host memory, by their names in peft's file; empty: there are none.

        All ranks call it.
        """
        if self._adapter is None:
            return {}
        named = self._adapter.named_matrices()
        with whole([matrix for _, matrix in named], partitioned=self._stage == 3):
            return {name: matrix.detach().cpu().clone() for name, matrix in named}

    def export(self, snapshot: WeightsSnapshot, target: Path, adapter: Mapping[str, Tensor]) -> None:
        """A snapshot of the weights as a HF-format directory, whole or not at all, with the adapter that is merged in it.

        From any thread.
        """
        own = self._adapter
        beside = None if own is None else partial(own.write, adapter, self._model_dir)
        config, shard_bytes_max = self._causal.config, self._settings.export_shard_bytes_max
        exports.write(snapshot, config, self._model_dir, target, shard_bytes_max, beside)

    def save(self, directory: Path, state: dict[str, Any]) -> Callable[[], None]:  # Any: JSON values of the caller
        """Copies everything that training goes on from, and `state`; what it returns writes them, from any thread.

        Every rank writes its part of the directory. Raises OSError, and so does the writing.
        """
        return self._model.save(directory, state)

    def load(self, directory: Path) -> dict[str, Any]:  # Any: as saved
        """The inverse of `save`: the next steps are those that would have come. Raises CheckpointInvalid."""
        return self._model.load(directory)


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

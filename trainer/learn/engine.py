"""DeepSpeed behind five verbs: train, give tensors, export, save, load.

One process is all there is so far: everything that assumes rank 0 of 1 stands in `join_alone`. To run on several ranks,
replace it by a real rendezvous, hand each rank its share of the micro-batches, scale its loss by the world size
(gradients are averaged over ranks), and let rank 0 alone write events and exports.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.errors import CheckpointInvalid, SettingsInvalid
from trainer.learn import attention
from trainer.learn import model as models
from trainer.learn.examples import Example
from trainer.learn.layouts import MicroBatch, lay_out
from trainer.learn.metrics import TokenTotals
from trainer.learn.objective import Objective, summed
from trainer.learn.policy_model import PolicyModel
from weights.device import Wish, resolved

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
    layout: attention.LayoutWish = "auto"


@dataclass(frozen=True, slots=True)
class Step:
    """What one optimizer step saw. `grad_norm` is before clipping."""

    totals: TokenTotals
    grad_norm: float
    micro_batches: int
    tokens_computed: int


class TrainingEngine:
    """A model under training. Belongs to one thread."""

    def __init__(self, model_dir: Path, settings: EngineSettings) -> None:
        """Raises ModelInvalid when `model_dir` is no model, SettingsInvalid when the device is not there."""
        self.device = torch.device(resolved(settings.device, sees_cuda=torch.cuda.is_available))
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise SettingsInvalid("device cuda: torch sees no CUDA here; drop it, or say device: cpu")
        self._settings = settings
        self._model_dir = model_dir
        self._precision = settings.precision or ("bf16" if self.device.type == "cuda" else "fp32")
        model = models.load(model_dir, self._precision)
        self._layout = attention.layout_of(model, settings.layout, self.device)
        policy = PolicyModel(model)
        self._causal = policy.causal
        self._vocabulary = policy.vocabulary
        join_alone(self.device)
        self._engine = _initialize(policy, settings, self._precision)

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

        version: the one being trained; its own tokens give the log-probability gap. before_micro_batch may raise to
        abandon the step; then load a checkpoint before training again.
        """
        torch.manual_seed(seed)
        layout = lay_out(examples, self._settings.micro_batch_tokens_max, self._layout)
        totals, norm = TokenTotals(), 0.0
        self._engine.train()
        for index, part in enumerate(layout.parts):
            before_micro_batch()
            last = index == len(layout.parts) - 1
            self._engine.set_gradient_accumulation_boundary(last)
            self._engine.backward(self._loss(layout.micro_batch(part, self.device), objective, version, totals))
            norm = self._own_norm() if last else norm
            self._engine.step()
        reported = self._engine.get_global_grad_norm()  # None at stage 0
        return Step(totals, norm if reported is None else float(reported), len(layout.parts), layout.tokens_computed)

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
        return summed(losses, tokens)

    def _own_norm(self) -> float:
        grads = [p.grad for p in self._engine.module.parameters() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads)) if grads else 0.0

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter under its name in the HF checkpoint, whole, always in the same order. A tied head is absent.

        Not copies, stage 3 aside: stage or write them before the next step.
        """
        import deepspeed

        for name, parameter in self._causal.named_parameters():
            if self._settings.zero_stage == 3:
                with deepspeed.zero.GatheredParameters([parameter]):
                    yield name, parameter.detach().clone()
            else:
                yield name, parameter.detach()

    def export(self, target: Path) -> None:
        """The weights as a HF-format directory, whole or not at all."""
        models.export(self._causal, self.named_tensors(), self._model_dir, target)

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


def _initialize(model: torch.nn.Module, settings: EngineSettings, precision: str) -> Any:  # Any: deepspeed is untyped
    import deepspeed

    _quiet(deepspeed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    config = {
        "train_micro_batch_size_per_gpu": 1,  # of no effect: accumulation is bounded by hand, micro-batches vary
        "gradient_accumulation_steps": 1,
        "gradient_clipping": settings.grad_clip,
        "zero_optimization": {"stage": settings.zero_stage},
        "bf16": {"enabled": precision == "bf16"},
        "steps_per_print": 10**9,
    }
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

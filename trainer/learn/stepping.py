"""A module under DeepSpeed: forward, gradients of many micro-batches, one optimizer step or none, save, load.

Invariant: a step whose loss or gradient is not finite changes nothing: weights and optimizer state keep every bit.
"""

import contextlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from claw_r1.trainer.config.optimizer import OptimizerSettings
from claw_r1.trainer.errors import CheckpointForeign, CheckpointInvalid, SettingsInvalid, TrainerError
from claw_r1.trainer.learn import deepspeed_config
from claw_r1.trainer.learn.model import Precision
from claw_r1.trainer.ranks.data_sharding import over_ranks
from claw_r1.trainer.storage.state_files import StateFiles, damage

STATE_KEY = "trainer"  # deepspeed merges its own keys into the client state
TAG = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """`zero_stage`: as resolved for the precision."""

    learning_rate: float
    precision: Precision
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    zero_stage: int = 0
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)

    @property
    def config(self) -> deepspeed_config.DeepSpeedConfig:
        """DeepSpeed's configuration."""
        return deepspeed_config.config_of(
            zero_stage=self.zero_stage,
            precision=self.precision,
            grad_clip=self.grad_clip,
            file=self.optimizer.deepspeed,
            offload=self.optimizer.offload,
        )

    @property
    def partition(self) -> deepspeed_config.DeepSpeedConfig | None:
        """The same where a model is to be partitioned while it is built: at stage 3."""
        return self.config if self.zero_stage == 3 else None


@dataclass(frozen=True, slots=True)
class Applied:
    """`grad_norm` is before clipping. `skipped`: a loss or gradient was not finite."""

    grad_norm: float
    skipped: bool


class SteppedModel:
    """A module and its optimizer. Belongs to one thread."""

    def __init__(self, module: nn.Module, settings: StepSettings) -> None:
        deepspeed = deepspeed_config.quiet_deepspeed()
        self._settings = settings
        self._stage, self._rate = settings.zero_stage, settings.learning_rate
        self._healthy = True
        own = settings.optimizer
        groups = decay_groups(module, settings)
        self._decays = [group["weight_decay"] for group in groups]
        self._has_frozen = not all(parameter.requires_grad for parameter in module.parameters())
        if self._has_frozen:
            module.register_state_dict_post_hook(_leave_out_frozen)
        optimizer = torch.optim.AdamW(
            groups,
            lr=settings.learning_rate,
            betas=(own.beta1, own.beta2),
            eps=own.epsilon,
        )
        with (
            contextlib.redirect_stdout(sys.stderr),
            _refusals(own.deepspeed),
        ):  # bf16 at stage 1 prints what memory it takes
            self._engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=settings.config)
        self._files = StateFiles()
        self._engine.checkpoint_engine.save = self._files.save
        # The writer makes folders. Here rank 0 would make them, alone, and fail alone on a full disk: the others would wait for it.
        self._engine.checkpoint_engine.makedirs = _leave_to_the_writer
        self._engine._copy_recovery_script = _leave_to_the_writer

    def __call__(self, *arguments: object) -> Any:  # Any: what the module returns
        return self._engine(*arguments)

    def begin(self, seed: int, rate_factor: float = 1.0) -> float:
        """Before the first micro-batch of a step: its learning rate, which is `rate_factor` times that of the settings."""
        torch.manual_seed(seed)
        self._engine.train()
        self._healthy = True
        own = self._settings.optimizer
        groups = self._engine.optimizer.param_groups  # a checkpoint brings those that it was written with
        for group, decay in zip(groups, self._decays, strict=True):
            group |= {"betas": (own.beta1, own.beta2), "eps": own.epsilon, "weight_decay": decay}
            group["lr"] = rate_factor * self._rate
        if hasattr(self._engine.optimizer, "clip_grad"):
            self._engine.optimizer.clip_grad = self._settings.grad_clip
        return rate_factor * self._rate

    def backward(self, loss: Tensor, outputs: Tensor, *, last: bool) -> None:
        """Adds the gradient of one micro-batch, of which ranks have equal numbers. `step` follows the `last` one.

        loss: the share in that of the batch, made of `outputs`. Scaled by the number of ranks, since DeepSpeed averages over them.
        """
        self._healthy = self._healthy and math.isfinite(loss.detach())
        self._engine.set_gradient_accumulation_boundary(last)
        # A loss that is not finite can have finite gradients, and a clip has none at all; no rank may step on them.
        own = loss if self._healthy or not last else outputs.sum() * math.nan
        self._engine.backward(own * dist.get_world_size())
        if not last:
            self._engine.step()

    def step(self) -> Applied:
        """The optimizer step, unless a gradient is not finite.

        DeepSpeed looks for itself from stage 1 on. At stage 0 it would clip by a norm that is no number.
        """
        if self._stage == 0:
            norm = self._own_norm()
            if not math.isfinite(norm):
                self._engine.set_gradient_accumulation_boundary(False)
                self._engine.step()  # counts a micro-batch and steps nothing
                self._engine.zero_grad()
                return Applied(norm, skipped=True)
            self._engine.step()
            return Applied(norm, skipped=False)
        self._engine.step()
        skipped = not self._engine.was_step_applied()
        if skipped:
            self._forget_gradients()
        return Applied(float(self._engine.get_global_grad_norm()), skipped=skipped)

    def _forget_gradients(self) -> None:
        """Drops the fp32 sums: with an optimizer in host memory DeepSpeed keeps those of a step that it skips, and adds to them."""
        sums = getattr(self._engine.optimizer, "averaged_gradients", {})
        sums.update(dict.fromkeys(sums))

    def _own_norm(self) -> float:
        grads = [p.grad for p in self._engine.module.parameters() if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads)) if grads else 0.0

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter by its name in memory, whole, in order; at stage 3 valid until the next is requested."""
        import deepspeed

        for name, parameter in self._engine.module.named_parameters():
            if self._stage == 3:
                with deepspeed.zero.GatheredParameters([parameter]):
                    yield name, parameter.detach()
            else:
                yield name, parameter.detach()

    def save(self, directory: Path, state: dict[str, Any]) -> Callable[[], None]:  # Any: JSON values of the caller
        """Copies everything that training goes on from, and `state`; what it returns writes them, from any thread.

        Every rank writes its part of the directory. Frozen parameters are not in it. Raises
        OSError, and so does the writing.
        """
        how = {
            "tag": TAG,
            "client_state": {STATE_KEY: state},
            "save_latest": False,  # a file that nobody reads, and that rank 0 would write here
            "exclude_frozen_parameters": self._has_frozen,
        }
        return self._files.copied(lambda: self._engine.save_checkpoint(str(directory), **how))

    def load(self, directory: Path) -> dict[str, Any]:  # Any: as saved
        """The inverse of `save`: the next steps are those that would have come.

        Raises CheckpointInvalid, on all ranks alike, and CheckpointForeign where other ranks wrote it.
        """
        self._check(directory / TAG)
        try:
            how = {"tag": TAG, "load_module_strict": not self._has_frozen}
            path, client = self._engine.load_checkpoint(str(directory), **how)
        except Exception as error:  # deepspeed and torch raise whatever a broken file makes them raise
            raise CheckpointInvalid(f"{directory} cannot be loaded: {type(error).__name__}: {error}") from error
        if path is None or STATE_KEY not in client:
            raise CheckpointInvalid(f"{directory} is no checkpoint of this trainer")
        state: dict[str, Any] = client[STATE_KEY]
        return state

    def _check(self, folder: Path) -> None:
        """Checks that every rank can read its part, unchanged: a rank that fails while the
        others load would leave them waiting."""
        parts = len(list(folder.glob("*_optim_states.pt")))
        if self._stage and parts not in (0, dist.get_world_size()):
            raise CheckpointForeign(
                f"checkpoint {folder.parent.name} was written by {parts} rank(s), and ZeRO {self._stage} cuts the state into "
                f"as many parts: start with --ranks {parts}, or begin another run_id with the newest export as model_dir"
            )
        own = {f"zero_pp_rank_{dist.get_rank()}_", f"bf16_zero_pp_rank_{dist.get_rank()}_", "mp_rank_"}
        problem = ""
        for path in sorted(folder.glob("*.pt")):
            if any(path.name.startswith(name) for name in own):
                problem = problem or damage(path) or _unreadable(path)
        if problems := [each for each in over_ranks(problem) if each]:
            raise CheckpointInvalid(problems[0])


def decay_groups(module: nn.Module, settings: StepSettings) -> list[dict[str, Any]]:  # Any: an optimizer's own
    """The trained parameters in groups with their decay; with `decay: weights` vectors and embeddings have none."""
    trained = [each for each in module.parameters() if each.requires_grad]
    undecayed = set() if settings.optimizer.decay == "all" else _undecayed(module)
    parts = [[each for each in trained if (id(each) in undecayed) is own] for own in (False, True)]
    groups = zip(parts, (settings.weight_decay, 0.0), strict=True)
    return [{"params": parameters, "weight_decay": decay} for parameters, decay in groups if parameters]


def _undecayed(module: nn.Module) -> set[int]:
    """Ids of vectors and embeddings; a tied head is one. At stage 3 a parameter is cut into parts, and knows its shape."""
    embeddings = {id(each.weight) for each in module.modules() if isinstance(each, nn.Embedding)}
    shapes = {id(each): getattr(each, "ds_shape", each.shape) for each in module.parameters()}
    return embeddings | {name for name, shape in shapes.items() if len(shape) < 2}


def _leave_out_frozen(module: nn.Module, state: dict[str, Any], prefix: str, _: object) -> None:
    """DeepSpeed leaves out what is frozen by one of its names, and would keep a tied head by the other."""
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if not parameter.requires_grad:
            state.pop(prefix + name, None)


def _leave_to_the_writer(*_: object, **__: object) -> None:
    pass


@contextlib.contextmanager
def _refusals(file: Path | None) -> Iterator[None]:
    """Turns a DeepSpeed error about a user's file into one line; without a file it is our bug and raised unchanged."""
    try:
        yield
    except Exception as error:
        if file is None or isinstance(error, TrainerError | torch.OutOfMemoryError):
            raise
        reason = " ".join(str(error).split())
        raise SettingsInvalid(
            f"optimizer.deepspeed: DeepSpeed refuses {file}: {type(error).__name__}: {reason}"
        ) from error


def _unreadable(path: Path) -> str:
    """Returns why the file cannot be loaded, as far as that shows without reading what is in its tensors."""
    try:
        torch.load(path, map_location="cpu", mmap=True, weights_only=False)
    except Exception as error:  # noqa: BLE001  # torch raises whatever a broken file makes it raise
        return f"{path} cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())}"
    return ""

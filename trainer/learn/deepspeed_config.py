"""DeepSpeed's configuration: the settings, over a JSON file of the user. Readable without torch.

Invariant: no value has two sources: a key of the file that a setting decides must equal the setting.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claw_r1.trainer.errors import SettingsInvalid

if TYPE_CHECKING:
    from claw_r1.trainer.settings import TrainerSettings

AUTO = "auto"
"""The value in a file that was written for the Trainer of transformers: whatever the program says."""
FORBIDDEN = {
    "optimizer": "the optimizer is AdamW, by learning_rate, weight_decay and optimizer.*",
    "train_batch_size": "a batch is made of groups, by spec.*",
    "scheduler": "the learning rate follows optimizer.schedule",
    "fp16": "precision is fp32 or bf16",
    "amp": "precision is fp32 or bf16",
}
OWNERS = {
    "gradient_clipping": "grad_clip",
    "zero_optimization.stage": "zero_stage",
    "zero_optimization.offload_optimizer.device": "optimizer.offload",
    "zero_force_ds_cpu_optimizer": "optimizer.offload",
    "bf16": "precision",
    "data_types": "precision",
}
"""The setting that decides a key of the file, or the keys below it; the others are of no setting."""
OFFLOADS = ("cpu", "nvme")
DeepSpeedConfig = dict[str, Any]  # Any: JSON values


def resolved_stage(zero_stage: int, precision: str) -> int:
    """Stage 0 sums the gradients of micro-batches in bf16 and cannot do otherwise: with bf16 it means stage 1."""
    return max(zero_stage, 1) if precision == "bf16" else zero_stage


def check(settings: "TrainerSettings") -> None:
    """Raises SettingsInvalid for a file that cannot be merged, as far as is known before torch resolves `auto`."""
    stage = resolved_stage(settings.zero_stage, settings.precision)
    file = settings.optimizer.deepspeed
    offload = settings.optimizer.offload
    config_of(zero_stage=stage, precision=settings.precision, grad_clip=settings.grad_clip, file=file, offload=offload)


def config_of(
    *, zero_stage: int, precision: str, grad_clip: float, file: Path | None = None, offload: str = "none"
) -> DeepSpeedConfig:
    """The configuration of an engine; zero_stage is resolved. Raises SettingsInvalid where the file contradicts it."""
    bf16 = precision == "bf16"
    ours: DeepSpeedConfig = {
        "train_micro_batch_size_per_gpu": 1,  # of no effect: accumulation is bounded by hand, micro-batches vary
        "gradient_accumulation_steps": 1,
        "gradient_clipping": grad_clip,
        "zero_optimization": {"stage": zero_stage},
        **(
            {}
            if precision == AUTO
            else {"bf16": {"enabled": True, "check_grad_overflow": True} if bf16 else {"enabled": False}}
        ),
        **({"data_types": {"grad_accum_dtype": "fp32"}} if bf16 else {}),
    }
    if offload != "none" and (zero_stage or precision != AUTO):  # auto may be bf16, and that is no stage 0
        ours |= offloaded(zero_stage, offload)
    if file is None:
        return {"steps_per_print": 10**9, **ours}
    config = merged(ours, read(file), file)
    _refuse_half_an_offload(config, file)
    return {"steps_per_print": 10**9, **config}


def offloaded(zero_stage: int, device: str) -> DeepSpeedConfig:
    """The keys that put AdamW's state elsewhere; torch's AdamW takes the steps. Raises SettingsInvalid at stage 0."""
    if not zero_stage:
        raise SettingsInvalid(f"optimizer.offload: {device} needs zero_stage 1, 2 or 3; at 0 nothing can be offloaded")
    zero = {"stage": zero_stage, "offload_optimizer": {"device": device}}
    return {"zero_optimization": zero, "zero_force_ds_cpu_optimizer": False}


def read(file: Path) -> DeepSpeedConfig:
    """The user's JSON. Raises SettingsInvalid unless it is an object without keys of settings."""
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"optimizer.deepspeed: {file} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise SettingsInvalid(f"optimizer.deepspeed: {file} is no JSON object")
    for name, reason in FORBIDDEN.items():
        value = config.get(name)
        if value and value != AUTO and not (isinstance(value, dict) and value.get("enabled") in (False, AUTO)):
            raise SettingsInvalid(f"optimizer.deepspeed: {file} has {name}, but {reason}")
    return config


def _refuse_half_an_offload(config: DeepSpeedConfig, file: Path) -> None:
    """DeepSpeed refuses any other optimizer there, unless configured to allow it; and its own is compiled first."""
    zero = config.get("zero_optimization")
    offload = zero.get("offload_optimizer") if isinstance(zero, dict) else None
    device = offload.get("device") if isinstance(offload, dict) else None
    if device in OFFLOADS and config.get("zero_force_ds_cpu_optimizer", True) is not False:
        raise SettingsInvalid(
            f"optimizer.deepspeed: {file} offloads the optimizer (zero_optimization.offload_optimizer.device: {device}), which is "
            'torch\'s AdamW here: say "zero_force_ds_cpu_optimizer": false in it, too'
        )


def merged(ours: DeepSpeedConfig, theirs: DeepSpeedConfig, file: Path) -> DeepSpeedConfig:
    """Merges both configurations; keys of the file that say otherwise than ours are refused by name, with the setting
    that decides them."""
    for path, value, own in contradictions(ours, theirs):
        says = f"optimizer.deepspeed: {file} says {path}: {json.dumps(value)}"
        setting = OWNERS.get(path) or OWNERS.get(path.split(".")[0])
        if setting is None:
            raise SettingsInvalid(f"{says}, and the trainer needs {json.dumps(own)}: leave it out")
        raise SettingsInvalid(f"{says}, and setting {setting} makes it {json.dumps(own)}: change one of the two")
    return _union(theirs, ours)


def contradictions(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Keys, as a.b, that both have with different values: the file's value and ours."""
    for name, value in theirs.items():
        own = ours.get(name)
        if isinstance(value, dict) and isinstance(own, dict):
            yield from contradictions(own, value, f"{prefix}{name}.")
        elif name in ours and value not in (own, AUTO):
            yield f"{prefix}{name}", value, own


def _union(under: Mapping[str, Any], over: Mapping[str, Any]) -> DeepSpeedConfig:
    kept = {name: value for name, value in under.items() if value != AUTO}
    return kept | {
        name: _union(kept[name], value) if isinstance(value, dict) and isinstance(kept.get(name), dict) else value
        for name, value in over.items()
    }


def quiet_deepspeed() -> Any:  # Any: deepspeed is untyped
    """DeepSpeed, its logs to stderr; no compiler run (47 s, or a hang on a stale lock) for an operator that nobody calls."""
    import deepspeed

    compatible = getattr(deepspeed.ops, "__compatible_ops__", {})
    compatible["deepspeed_shm_comm"] = False
    for name in ("DeepSpeed", "deepspeed"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.WARNING)
        for handler in logger.handlers:
            if type(handler) is logging.StreamHandler:  # its own, and none that somebody else attached
                handler.setStream(sys.stderr)
    return deepspeed

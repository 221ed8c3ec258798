"""The model directory: what a HF-format directory must hold, and the model that is loaded from it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from claw_r1.trainer.errors import ModelInvalid

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Precision = Literal["fp32", "bf16"]
DROPOUTS = ("dropout", "drop_prob", "pdrop", "layerdrop")
CHANGING_ROPES = frozenset({"longrope", "su", "dynamic"})
"""Types of rotary positions, `su` as it was called first, whose frequencies transformers chooses
anew in each forward pass."""
JITTERS = frozenset({"jitter_noise", "input_jitter_noise", "moe_jitter_eps"})


def check(directory: Path, setting: str = "model_dir") -> None:
    """Raises ModelInvalid in one line, which names the setting, unless this looks like a model. Cheap: reads no weights,
    imports no torch."""
    if not directory.is_dir():
        raise ModelInvalid(
            f"{setting} {directory} is no directory; give one in HF format (config.json, *.safetensors, tokenizer)"
        )
    try:
        config = json.loads((directory / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise ModelInvalid(f"{setting} {directory} has no readable config.json; it must be in HF format") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise ModelInvalid(f"{setting} {directory}: config.json names no model_type")
    if not list(directory.glob("*.safetensors")):
        raise ModelInvalid(f"{setting} {directory} has no *.safetensors")
    if changing := CHANGING_ROPES.intersection(_rope_types(config)):
        raise ModelInvalid(
            f"{setting} {directory} has rope_type {min(changing)}: its log-probabilities would depend on the longest row that is "
            "computed beside a row, and the engine's do not; it cannot be trained"
        )


def _rope_types(config: Mapping[str, Any]) -> Iterator[str]:
    """Yields the types of rotary positions that a config names: of the model, of its text model, of each type of layer."""
    for holder in (config, config.get("text_config") or {}):
        for name in ("rope_parameters", "rope_scaling"):
            whole = holder.get(name) or {}
            for each in (whole, *(part for part in whole.values() if isinstance(part, dict))):
                if not each.get("alpha"):  # Hunyuan's: `dynamic` by a factor that never changes
                    yield str(each.get("rope_type", each.get("type")))


def load(
    directory: Path,
    precision: Precision,
    partition: Mapping[str, object] | None = None,
    *,
    setting: str = "model_dir",
) -> "PreTrainedModel":
    """The causal language model, without dropout: the engine has none, and the ratio compares the two.

    partition: DeepSpeed's configuration of stage 3: each parameter is cut into the parts of the ranks as soon as it is
    made, so no rank ever holds the whole model. setting: that of the directory. Raises ModelInvalid. Nothing is
    downloaded, and no code of the directory is run.
    """
    check(directory, setting)
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    from claw_r1.trainer.ranks.zero3 import give_buffers, partitioned

    disable_progress_bar()  # of every rank: the line that says why one ended would stand behind a bar
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    try:
        with nullcontext() if partition is None else partitioned(partition):
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, local_files_only=True)
    except Exception as error:  # transformers raises almost anything for a directory that is no model
        raise ModelInvalid(f"{setting} {directory} cannot be loaded: {_one_line(error)}") from error
    if model.base_model is model:  # Llama 4's text model names a part that it has not
        raise ModelInvalid(
            f"{setting} {directory}: {type(model).__name__} does not name its part before the head; it cannot be trained"
        )
    if partition is not None:
        give_buffers(without_weights(directory, dtype), model)
    without_dropout(model)
    return model


def without_weights(directory: Path, dtype: "torch.dtype | None" = None) -> "PreTrainedModel":
    """The same model, its parameters on the meta device: names and shapes. dtype: None: torch's own. Raises ModelInvalid."""
    check(directory)
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        with torch.device("meta"):
            config = AutoConfig.from_pretrained(directory, local_files_only=True)
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    except Exception as error:  # transformers raises almost anything for a directory that is no model
        raise ModelInvalid(f"model_dir {directory} cannot be built: {_one_line(error)}") from error
    return model


def without_dropout(model: "PreTrainedModel") -> None:
    """Sets every dropout of the model, and other noise of training, to 0, in place; also in its config, which some models read when
    they run. That none is left is tried out by `PolicyModel`."""
    import torch
    from transformers import PretrainedConfig

    configs = (getattr(module, "config", None) for module in model.modules())
    for holder in (*model.modules(), *(config for config in configs if isinstance(config, PretrainedConfig))):
        if isinstance(holder, torch.nn.Dropout):
            holder.p = 0.0
        for name in [name for name, value in vars(holder).items() if _is_noise(name, value)]:
            setattr(holder, name, 0.0)


def _is_noise(name: str, value: object) -> bool:
    """Decides by the names that models of transformers have: a rate is a number, and `router_jitter_noise` bounds scores, too."""
    is_rate = isinstance(value, int | float) and not isinstance(value, bool)
    return is_rate and (name in JITTERS or any(word in name for word in DROPOUTS))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]

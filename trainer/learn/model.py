"""The model directory: what a HF-format directory must hold, and how one is written with exactly the weights in hand.

Invariant: an export holds the same tensors, under the same names, as the version that was published, so that its
manifest has the published digest.
"""

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trainer.errors import ModelInvalid

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".safetensors.index.json", ".bin.index.json")
Precision = Literal["fp32", "bf16"]


def check(directory: Path) -> None:
    """Raises ModelInvalid in one line unless this looks like a model. Cheap: reads no weights, imports no torch."""
    if not directory.is_dir():
        raise ModelInvalid(
            f"model_dir {directory} is no directory; give one in HF format (config.json, *.safetensors, tokenizer)"
        )
    try:
        config = json.loads((directory / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise ModelInvalid(f"model_dir {directory} has no readable config.json; it must be in HF format") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise ModelInvalid(f"model_dir {directory}: config.json names no model_type")
    if not list(directory.glob("*.safetensors")):
        raise ModelInvalid(f"model_dir {directory} has no *.safetensors")


def load(directory: Path, precision: Precision) -> "PreTrainedModel":
    """The causal language model, without dropout: the engine has none, and the ratio compares the two.

    Raises ModelInvalid. Nothing is downloaded, and no code of the directory is run.
    """
    check(directory)
    import torch
    from transformers import AutoModelForCausalLM

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, local_files_only=True)
    except Exception as error:  # transformers raises almost anything for a directory that is no model
        raise ModelInvalid(f"model_dir {directory} cannot be loaded: {_one_line(error)}") from error
    without_dropout(model)
    return model


def without_dropout(model: "PreTrainedModel") -> None:
    """Sets every dropout of the model to 0, in place."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


def export(
    model: "PreTrainedModel", named_tensors: Iterable[tuple[str, "torch.Tensor"]], source: Path, target: Path
) -> None:
    """Writes a HF-format directory: these tensors, the model's config, and the tokenizer files of `source`.

    Appears under `target` whole or not at all; a `target` that exists is left as it is.
    """
    if target.exists():
        return
    from safetensors.torch import save_file

    partial = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for path in source.iterdir():
        if path.is_file() and not path.name.endswith(WEIGHT_SUFFIXES):
            shutil.copyfile(path, partial / path.name)
    model.config.save_pretrained(partial)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in named_tensors}
    save_file(tensors, partial / "model.safetensors", metadata={"format": "pt"})
    publish_directory(partial, target)


def publish_directory(partial: Path, target: Path) -> None:
    """Gives a finished directory its name. Its files are on disk before it has it."""
    for path in [*partial.rglob("*"), partial]:
        _sync(path)
    try:
        partial.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(partial)  # another incarnation was faster; same name, same bytes
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]

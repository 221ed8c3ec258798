"""Exports of a run: directories in Hugging Face format, which workers and other programs load.

Invariant: an export holds the same tensors, under the same names, as the version that was published, so that its
manifest has the published digest.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from claw_r1.trainer.storage.directories import PartialDirectory
from claw_r1.weights import checkpoint

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from claw_r1.weights.snapshot import WeightsSnapshot

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".safetensors.index.json", ".bin.index.json")


def write(
    snapshot: "WeightsSnapshot",
    config: "PretrainedConfig",
    source: Path,
    target: Path,
    shard_bytes_max: int,
    beside: Callable[[Path], None] | None,
) -> None:
    """The snapshot, the model's config, and the tokenizer files of `source`; an existing one is left unchanged.

    beside: writes further files into the folder, if any. Raises OSError. From any thread.
    """
    if target.exists():
        return
    partial = PartialDirectory(target)

    def contents() -> None:
        for path in source.iterdir():
            if path.is_file() and not path.name.endswith(WEIGHT_SUFFIXES):
                shutil.copyfile(path, partial.path / path.name)
        config.save_pretrained(partial.path)
        checkpoint.write(partial.path, snapshot, shard_bytes_max)
        if beside is not None:
            beside(partial.path)

    partial.fill(contents)

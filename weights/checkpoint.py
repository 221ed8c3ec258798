"""Writes the weights of a HF checkpoint directory, and an adapter.

The way to a worker when the trainer is gone (`claw_r1.weights.sources`).

Format of a file: https://github.com/safetensors/safetensors#format. It is written here, because a snapshot's memory goes to
disk as it is, while the library wants each tensor whole.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from claw_r1.weights.manifest import ITEM_BYTES, TensorShape

if TYPE_CHECKING:
    from claw_r1.weights.snapshot import WeightsSnapshot

SHARD_BYTES_MAX = 5 * 10**9
DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
Shard = list[tuple[TensorShape, memoryview]]
ADAPTER_FOLDER = "adapter"
"""The folder of an export in which the adapter lies."""
ADAPTER_PREFIX = "base_model.model."
"""The front of each name in the file of an adapter, as peft has it."""
ADAPTER_KIND = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "lora_dropout": 0.0,
    "bias": "none",
    "inference_mode": True,
}
"""The part of an adapter's config that is always the same."""


def write(directory: Path, snapshot: "WeightsSnapshot", shard_bytes_max: int = SHARD_BYTES_MAX) -> None:
    """The snapshot as safetensors files, with an index where they are several. A larger tensor is a file of its own.

    Raises OSError. Copies nothing: hold the snapshot until this returns.
    """
    shards = _shards(snapshot, shard_bytes_max)
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        several = f"-{number:05d}-of-{len(shards):05d}" if len(shards) > 1 else ""
        path = directory / f"model{several}.safetensors"
        _write_file(path, shard)
        index |= {spec.name: path.name for spec, _ in shard}
    if len(shards) > 1:
        metadata = {"total_size": snapshot.manifest.bytes_total}
        text = json.dumps({"metadata": metadata, "weight_map": index}, indent=2, sort_keys=True)
        (directory / "model.safetensors.index.json").write_text(text + "\n")


def write_adapter(directory: Path, tensors: Shard, *, rank: int, alpha: int, base: str | None = None) -> None:
    """Writes a LoRA adapter; of no tensors it changes nothing.

    base: the directory of its model. Raises OSError.
    """
    _write_file(directory / "adapter_model.safetensors", tensors)
    names = [spec.name.removeprefix(ADAPTER_PREFIX) for spec, _ in tensors]
    layers = sorted({name.partition(".lora_")[0] for name in names})
    own = {"r": rank, "lora_alpha": alpha, "target_modules": layers}
    config = {**ADAPTER_KIND, "base_model_name_or_path": base, **own}
    (directory / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True))


def _shards(snapshot: "WeightsSnapshot", bytes_max: int) -> list[Shard]:
    shards: list[Shard] = [[]]
    size = 0
    for spec, content in snapshot.tensors():
        if shards[-1] and size + spec.nbytes > bytes_max:
            shards.append([])
            size = 0
        shards[-1].append((spec, content))
        size += spec.nbytes
    return shards


def _write_file(path: Path, shard: Shard) -> None:
    # Wide numbers first: each tensor starts at a multiple of its item, so that readers can map it.
    shard = sorted(shard, key=lambda entry: -ITEM_BYTES[entry[0].dtype])
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for spec, _ in shard:
        begin, end = end, end + spec.nbytes
        header[spec.name] = {"dtype": DTYPES[spec.dtype], "shape": spec.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(content for _, content in shard)

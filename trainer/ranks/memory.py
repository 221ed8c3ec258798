"""The memory of a rank, from the shapes of a model directory by a formula. Reads no weights, imports no torch.

Per parameter (Rajbhandari et al. 2020, ZeRO): 4 bytes of weight, 4 of gradient and 8 of AdamW's moments in fp32; in bf16 2 of
weight, 2 of gradient and 4 of its sum over micro-batches, 4 of master weight and 8 of moments. From stage 1 on the ranks share
masters and moments, from 2 on the gradients, from 3 on the weights.

Per token of a micro-batch and layer, with b bytes a number, width h, MLP width i, q and kv numbers of a query and of a key:
(8 + 4b) h + 4 b i + 2 b (q + kv), and (4 + b) (q + kv) more where queries and keys are normalised: what the backward pass of a
Llama or Qwen needs, whose norms are computed in fp32. With gradient checkpointing b h per layer, and all of that for one.
The head: two float32 copies of the logits of one part, and a float32 gradient of its weight. With LoRA the adapters alone have
gradients, masters and moments. Not counted: DeepSpeed's buckets, the allocator's own, a reference, adapters' share of
activations.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOGITS = {"cpu": 1 << 24, "cuda": 1 << 27}
"""The logits of one part, as in `trainer/learn/logprobs.py`."""
FP32, BF16 = 4, 2
LENGTH_BYTES = 8  # of the header of a safetensors file


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The shape of one model directory. `queries`, `keys`: numbers of one token's queries, and of its keys."""

    parameters: int
    layers: int
    width: int
    mlp_width: int
    vocabulary: int
    queries: int
    keys: int
    query_norm: bool


def shape_of(directory: Path) -> ModelShape | None:
    """None if config.json names its sizes unlike Llama's."""
    config: Mapping[str, Any] = json.loads((directory / "config.json").read_text())
    config = config.get("text_config", config)
    tensors = [item for path in sorted(directory.glob("*.safetensors")) for item in _header(path).items()]
    try:
        heads, width = config["num_attention_heads"], config["hidden_size"]
        head_width = config.get("head_dim") or width // heads
        experts = config.get("num_experts_per_tok")
        return ModelShape(
            parameters=sum(math.prod(tensor["shape"]) for _, tensor in tensors),
            layers=config["num_hidden_layers"],
            width=width,
            mlp_width=experts * config["moe_intermediate_size"] if experts else config["intermediate_size"],
            vocabulary=config["vocab_size"],
            queries=heads * head_width,
            keys=(config.get("num_key_value_heads") or heads) * head_width,
            query_norm=any("q_norm" in name for name, _ in tensors),
        )
    except KeyError:
        return None


def _header(path: Path) -> dict[str, Any]:  # JSON
    with path.open("rb") as file:
        tensors: dict[str, Any] = json.loads(file.read(int.from_bytes(file.read(LENGTH_BYTES), "little")))
    tensors.pop("__metadata__", None)
    return tensors


def bytes_per_rank(
    shape: ModelShape,
    *,
    device: str,
    precision: str,
    stage: int,
    ranks: int,
    tokens: int,
    checkpointing: bool = False,
    offload: str = "none",
    trained: int | None = None,
) -> dict[str, int]:
    """tokens: of a full micro-batch, padding included. stage: of ZeRO, as it will be. offload: what lies on the host is in no
    total. trained: parameters of adapters, the others being frozen; None: all are trained."""
    n, number = shape.parameters + (trained or 0), BF16 if precision == "bf16" else FP32
    m = n if trained is None else trained
    gradient, optimizer = (number + FP32, FP32 + 2 * FP32) if precision == "bf16" else (number, 2 * FP32)
    parts = {
        "weights": n * number // (ranks if stage >= 3 else 1),
        "gradients": m * gradient // (ranks if stage >= 2 else 1),
        "optimizer": m * optimizer // (ranks if stage >= 1 else 1),
        "activations": tokens * _bytes_per_token(shape, number, checkpointing=checkpointing),
        "head": FP32 * (2 * LOGITS[device] + (shape.vocabulary * shape.width if trained is None else 0)),
    }
    host = {} if offload == "none" else {"optimizer_on_host": parts.pop("optimizer")}
    return {**parts, "total": sum(parts.values()), **host}


def _bytes_per_token(shape: ModelShape, number: int, *, checkpointing: bool) -> int:
    attention = shape.queries + shape.keys
    layer = (8 + 4 * number) * shape.width + 4 * number * shape.mlp_width + 2 * number * attention
    layer += (4 + number) * attention if shape.query_norm else 0
    return layer + number * shape.width * shape.layers if checkpointing else layer * shape.layers

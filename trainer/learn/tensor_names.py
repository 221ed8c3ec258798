"""Maps a model in memory to the tensors of its checkpoint on disk: names, order, shapes, a group of tensors at a time.

Invariant: the result has the names, shapes, dtypes and bytes that `save_pretrained` would write. transformers 5
renames, stacks and fuses tensors when it loads (`experts.0.gate_proj.weight` becomes a slice of `experts.gate_up_proj`),
and vLLM and all other readers know only the names on disk. The reverse is transformers' own, of
`core_model_loading.revert_weight_conversion`; that function needs the whole model at once and this one does not.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from claw_r1.trainer.learn.models.lora import LoraAdapter

GATHERED_BYTES_MAX = 256 << 20
"""Partitioned parameters that are whole at one time; a larger one is gathered alone."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Tensors in memory (`sources`) that become tensors on disk together.

    `patterns`: which pattern of the transform each source stands for. A mere renaming has one source and `target`.
    """

    sources: tuple[str, ...]
    patterns: tuple[str, ...]
    target: str
    transform: Any | None  # Any: a WeightConverter, whose module is heavy and untyped

    def tensors(self, model: "PreTrainedModel", held: "HeldTensors") -> Iterator[tuple[str, Tensor]]:
        """(name on disk, tensor), views where the conversion allows. held: those of `model`, whole."""
        if self.transform is None:
            yield self.target, held[self.sources[0]]
            return
        transform = deepcopy(self.transform)  # it collects tensors
        for source, pattern in zip(self.sources, self.patterns, strict=True):
            transform.add_tensor(self.target, source, pattern, held[source])
        for name, value in transform.convert(self.target, model=model, config=model.config).items():
            yield name, value[0] if isinstance(value, list) else value


class HeldTensors:
    """The parameters and buffers of a model, by the names that they have without adapters."""

    def __init__(self, model: "PreTrainedModel", adapter: "LoraAdapter | None") -> None:
        self._tensors = dict(model.named_parameters(remove_duplicate=False))
        self._tensors |= dict(model.named_buffers())
        self._adapter = adapter
        self._layers: dict[str, str] = {}
        if adapter is not None:
            for name, layer in adapter.layers.items():
                self._layers[f"{name}.weight"] = name
                own = layer.get_base_layer().named_parameters()
                self._tensors |= {f"{name}.{leaf}": parameter for leaf, parameter in own}

    def __getitem__(self, name: str) -> Tensor:
        """Returns the tensor of this name, the adapter of its layer in it. Its `parts` are whole."""
        tensor, layer = self._tensors[name].detach(), self._layers.get(name)
        if self._adapter is None or layer is None:
            return tensor
        return self._adapter.merged(layer, tensor)

    def parts(self, names: Sequence[str]) -> list[Tensor]:
        """Returns all that must be whole for the tensors of these names."""
        parts = [self._tensors[name] for name in names]
        if self._adapter is not None:
            layers = [self._layers[name] for name in names if name in self._layers]
            parts += [matrix for layer in layers for matrix in self._adapter.matrices(layer)]
        return parts


class CheckpointTensors:
    """The tensors of one model as in its checkpoint. Made once: finding names is slow, returning tensors is not."""

    def __init__(self, model: "PreTrainedModel") -> None:
        """model: without adapters yet."""
        self._model = model
        self._conversions = conversions(model)
        self._adapter: LoraAdapter | None = None

    def merge(self, adapter: "LoraAdapter") -> None:
        """From now on the tensors have the model's adapters in them."""
        self._adapter = adapter

    def __call__(self, *, partitioned: bool = False) -> Iterator[tuple[str, Tensor]]:
        """(name, tensor), always in the same order; a tied tensor comes once. A tensor is right until the next one is asked for.

        partitioned: ZeRO 3 holds a part of each parameter. They are made whole on every rank, in buckets of at most
        `GATHERED_BYTES_MAX`: all ranks must iterate, at the same time and to the end.
        """
        held = HeldTensors(self._model, self._adapter)
        for bucket in self._buckets(held) if partitioned else [self._conversions]:
            with whole([each for part in bucket for each in held.parts(part.sources)], partitioned=partitioned):
                for conversion in bucket:
                    yield from conversion.tensors(self._model, held)

    def _buckets(self, held: HeldTensors) -> Iterator[list[Conversion]]:
        bucket: list[Conversion] = []
        size = 0
        for conversion in self._conversions:
            nbytes = sum(map(_bytes_whole, held.parts(conversion.sources)))
            if bucket and size + nbytes > GATHERED_BYTES_MAX:
                yield bucket
                bucket, size = [], 0
            bucket.append(conversion)
            size += nbytes
        if bucket:
            yield bucket


def _bytes_whole(tensor: Tensor) -> int:
    count: int = getattr(tensor, "ds_numel", tensor.numel())  # ds_numel: of a partitioned parameter
    return count * int(tensor.element_size())


def whole(tensors: list[Tensor], *, partitioned: bool) -> AbstractContextManager[None]:
    """In its block the tensors are whole on every rank. All ranks call it where they are partitioned."""
    if not partitioned:
        return nullcontext()
    import deepspeed

    gathered: AbstractContextManager[None] = deepspeed.zero.GatheredParameters(
        [tensor for tensor in tensors if hasattr(tensor, "ds_numel")]
    )
    return gathered


def conversions(model: "PreTrainedModel") -> tuple[Conversion, ...]:
    """Returns how each saved tensor of the model gets to disk, in the model's own order. Reads names only, no weights."""
    from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

    names = saved_names(model)
    reverse = _reverse_transforms(model)
    renamings = [transform for transform in reverse if isinstance(transform, WeightRenaming)]
    converters = [transform for transform in reverse if isinstance(transform, WeightConverter)]
    by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    grouped: dict[str, Conversion] = {}
    # Sorted, because some renamings of transformers are switched on by the first name of a pair.
    for name in sorted(names, key=dot_natural_key):
        target, pattern = rename_source_key(name, renamings, converters, reverse=True)
        before = grouped.get(target)
        grouped[target] = Conversion(
            sources=(*(before.sources if before else ()), name),
            patterns=(*(before.patterns if before else ()), pattern or name),
            target=target,
            transform=None if pattern is None else by_pattern[pattern],
        )
    place = {name: index for index, name in enumerate(names)}
    return tuple(sorted(grouped.values(), key=lambda conversion: min(place[name] for name in conversion.sources)))


def saved_names(model: "PreTrainedModel") -> list[str]:
    """Names in memory of what `save_pretrained` keeps: parameters and persistent buffers, of tied ones the main one."""
    import torch
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    # On the meta device ties are told by the parameters' identity, which holds for partitioned ones, too; but those are
    # empty, and what is empty shares nothing.
    held = {name: torch.empty(1, dtype=tensor.dtype, device="meta") for name, tensor in model.state_dict().items()}
    ignored = list(model._keys_to_ignore_on_save or ())
    held = {name: tensor for name, tensor in held.items() if not any(re.fullmatch(key, name) for key in ignored)}
    return list(remove_tied_weights_from_state_dict(held, model))


def _reverse_transforms(model: "PreTrainedModel") -> list[Any]:  # Any: WeightTransforms
    """Returns the transforms of `revert_weight_conversion`: what loading did, or would have done, backwards."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import PrefixChange

    used = getattr(model, "_weight_conversions", None)
    if used is None:  # made in code, not loaded
        mapping = get_model_conversion_mapping(model, add_legacy=False)
        used = [transform for transform in mapping if not isinstance(transform, PrefixChange)]
    return [transform.reverse_transform() for transform in reversed(used)]

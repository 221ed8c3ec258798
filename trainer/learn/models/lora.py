"""LoRA (Hu et al., arXiv 2106.09685): beside a linear layer W a product B A of low rank,
which alone is trained.

peft's layers are put into the model itself, so that its modules and the names of its
checkpoint stay unchanged. Invariant: published weights have the names, shapes and
dtypes of the model without adapters, and each layer with a zero B has its exact
bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from claw_r1.trainer.config.lora import ALL_LINEAR, LoraSettings
from claw_r1.trainer.errors import SettingsInvalid
from claw_r1.trainer.learn.models.adapted_linear import AdaptedLinear
from claw_r1.weights.checkpoint import ADAPTER_FOLDER, ADAPTER_PREFIX, write_adapter
from claw_r1.weights.manifest import memory_of, spec_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "default"
"""The adapter's name in peft."""
MATRICES = ("lora_A", "lora_B")


@dataclass
class LoraAdapter:
    """The adapters of one model.

    `layers`: by the names of their linear layers.
    """

    settings: LoraSettings
    layers: Mapping[str, Any]  # Any: peft's are untyped
    _is_off: bool = False

    @classmethod
    def of(cls, model: "PreTrainedModel", settings: LoraSettings, seed: int) -> "LoraAdapter":
        """Puts adapters into the model, in place, and freezes all else. The same seed gives the same matrices on every rank. Raises
        SettingsInvalid."""
        from peft import LoraConfig, inject_adapter_in_model

        names = target_layers(model, settings.targets)
        # In a module without a config: of a model's, peft takes a layer called gate_proj for
        # one of the experts' where there are any, and adapts those.
        holder = nn.ModuleDict({"causal": model})
        targets = [f"causal.{name}" for name in names]
        config = LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=targets)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            inject_adapter_in_model(config, holder, NAME)
        return cls(settings, {name: model.get_submodule(name) for name in names})

    def fuse(self) -> None:
        """Lets each layer compute by `AdaptedLinear`, after the last trial on the model.

        A layer then calls no module that holds its parameters: ZeRO 3 gathers each at its
        first use, and with the layer from then on.
        """
        for name, layer in self.layers.items():
            layer.forward = partial(self._forward, name, layer.get_base_layer())

    def _forward(self, name: str, base: nn.Linear, x: Tensor) -> Tensor:
        if self._is_off:
            return nn.functional.linear(x, base.weight, base.bias)
        a, b = self.matrices(name)
        out: Tensor = AdaptedLinear.apply(x, base.weight, base.bias, a, b, self.scale)
        return out

    @cached_property
    def scale(self) -> float:
        """The factor of B A."""
        return self.settings.alpha / self.settings.rank

    def matrices(self, layer: str) -> list[Tensor]:
        """A [rank, in] and B [out, rank] of a layer."""
        return [getattr(self.layers[layer], matrix)[NAME].weight for matrix in MATRICES]

    def named_matrices(self) -> list[tuple[str, Tensor]]:
        """Every A and B by its name in the file of an adapter."""
        return [
            (f"{ADAPTER_PREFIX}{layer}.{name}.weight", matrix)
            for layer in self.layers
            for name, matrix in zip(MATRICES, self.matrices(layer), strict=True)
        ]

    @torch.no_grad()
    def merged(self, layer: str, weight: Tensor) -> Tensor:
        """W + scale · B A, summed in float32 and rounded to W's dtype once.

        W itself while B is zero.
        """
        a, b = self.matrices(layer)
        if not b.any():
            return weight
        whole = torch.addmm(weight.float(), b.float(), a.float(), alpha=self.scale)
        return whole.to(weight.dtype)

    @contextmanager
    def off(self) -> Iterator[None]:
        """In the block the model is the one that it was before it had adapters."""
        self._is_off = True
        try:
            yield
        finally:
            self._is_off = False

    def write(self, tensors: Mapping[str, Tensor], model_dir: Path, export: Path) -> None:
        """Writes an adapter as `peft.PeftModel.from_pretrained` reads it.

        tensors: by the names in the file. export: where its folder is made. Raises OSError.
        """
        (folder := export / ADAPTER_FOLDER).mkdir()
        written = [(spec_of(name, tensor), memory_of(tensor)) for name, tensor in tensors.items()]
        rank, alpha = self.settings.rank, self.settings.alpha
        write_adapter(folder, written, rank=rank, alpha=alpha, base=str(model_dir.absolute()))


def target_layers(model: "PreTrainedModel", targets: Sequence[str]) -> list[str]:
    """Returns the names of the linear layers that the targets name, in the model's order.

    Raises SettingsInvalid in one line for a target that names none.
    """
    linear = _linear_layers(model)
    for target in targets:
        if not any(_named(name, target) for name in linear):
            raise SettingsInvalid(_no_layer(model.config.model_type, target, linear))
    return [name for name in linear if any(_named(name, target) for target in targets)]


def _linear_layers(model: "PreTrainedModel") -> list[str]:
    """All but the head: tokens are scored by its weight alone."""
    head = model.get_output_embeddings()
    modules = model.named_modules()
    return [name for name, each in modules if type(each) is nn.Linear and each is not head]


def _no_layer(kind: str, target: str, linear: Sequence[str]) -> str:
    ends = ", ".join(sorted({name.rpartition(".")[2] for name in linear})) or "none"
    return (
        f"lora.targets: no linear layer of a model of type {kind} ends with {target}, its head aside; there are: {ends}"
    )


def _named(layer: str, target: str) -> bool:
    return target == ALL_LINEAR or layer == target or layer.endswith(f".{target}")


def parameters_of(model: "PreTrainedModel", settings: LoraSettings) -> tuple[int, int]:
    """Layers and parameters of the adapters that the model would get. Reads shapes alone: it may be on the meta device. Raises
    SettingsInvalid."""
    names = target_layers(model, settings.targets)
    sizes = [sum(model.get_submodule(name).weight.shape) for name in names]
    return len(names), settings.rank * sum(sizes)

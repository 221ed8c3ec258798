"""Models of which each rank holds a part of every parameter (ZeRO 3), from the moment they are built."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

from claw_r1.trainer.learn.deepspeed_config import quiet_deepspeed

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class _Partition:
    """The configuration that `from_pretrained` asks for, to build a model by `deepspeed.zero.Init` and to fill it
    module by module."""

    def __init__(self, config: Mapping[str, object]) -> None:
        self.config = dict(config)

    def is_zero3(self) -> bool:
        return True


@contextmanager
def partitioned(config: Mapping[str, object]) -> Iterator[None]:
    """A model that `from_pretrained` builds in the block is cut as it is built. config: of DeepSpeed."""
    from transformers.integrations import deepspeed as integration

    quiet_deepspeed()
    partition = _Partition(config)  # transformers holds it weakly
    integration.set_hf_deepspeed_config(partition)
    try:
        yield
    finally:
        integration.unset_hf_deepspeed_config()


def give_buffers(shell: "PreTrainedModel", model: "PreTrainedModel") -> None:
    """Makes the buffers that no file holds, such as rotary frequencies, as at any other stage: `deepspeed.zero.Init` has rounded
    them to the parameters' dtype. shell: the same model on the meta device, made outside `partitioned`."""
    names = [name for name, _ in shell.named_non_persistent_buffers()]
    for name in names:
        _set_buffer(shell, name, torch.empty_like(shell.get_buffer(name), device="cpu"))
    shell.initialize_weights()  # as `from_pretrained` fills them; what is on the meta device stays empty
    for name in names:
        _set_buffer(model, name, shell.get_buffer(name).to(model.get_buffer(name).device))


def _set_buffer(model: nn.Module, name: str, value: torch.Tensor) -> None:
    module, _, own = name.rpartition(".")
    setattr(model.get_submodule(module), own, value)


@contextmanager
def whole_when_called(model: nn.Module) -> Iterator[None]:
    """A model not yet run by DeepSpeed: each module has its own parameters whole while it is called. All ranks call."""
    gathered: dict[nn.Module, ExitStack] = {}

    def enter(module: nn.Module, _: object) -> None:
        parameters = [each for each in module.parameters(recurse=False) if hasattr(each, "ds_id")]
        if parameters:
            gathered[module] = ExitStack()
            gathered[module].enter_context(quiet_deepspeed().zero.GatheredParameters(parameters))

    def leave(module: nn.Module, *_: object) -> None:
        if module in gathered:
            gathered.pop(module).close()

    with ExitStack() as hooks:
        for module in model.modules():
            hooks.callback(module.register_forward_pre_hook(enter).remove)
            hooks.callback(module.register_forward_hook(leave).remove)
        yield

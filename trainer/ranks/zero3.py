"""Models of which each rank holds a part of every parameter (ZeRO 3), from the moment they are built."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from torch import nn

from claw_r1.trainer.learn.deepspeed_config import quiet_deepspeed


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

"""The libraries that some settings alone need, looked for before anything is started."""

import importlib.util
from typing import TYPE_CHECKING

from claw_r1.runtime.modules import absent
from claw_r1.trainer.errors import SettingsInvalid

if TYPE_CHECKING:
    from claw_r1.trainer.settings import TrainerSettings


SINKS = ("trackio", "wandb")
"""Sinks that are libraries by the same name."""


def check(settings: "TrainerSettings") -> None:
    """Raises SettingsInvalid in one line if a requested package is not installed: LoRA's library, or a sink."""
    if settings.lora.rank and (missing := absent("lora")):
        raise SettingsInvalid(
            f"lora.rank: {missing[0]} is not installed, it belongs to the extra lora: pip install 'claw-r1[lora]'"
        )
    for name in settings.sinks:
        if name in SINKS and importlib.util.find_spec(name) is None:
            raise SettingsInvalid(f"sinks: {name} is not installed here: pip install {name}, or leave it out")

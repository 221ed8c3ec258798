"""The libraries that some settings alone need, looked for before anything is started."""

from typing import TYPE_CHECKING

from claw_r1.runtime.modules import absent
from claw_r1.trainer.errors import SettingsInvalid

if TYPE_CHECKING:
    from claw_r1.trainer.settings import TrainerSettings


def check(settings: "TrainerSettings") -> None:
    """Raises SettingsInvalid in one line where LoRA is on and its library is not installed."""
    if settings.lora.rank and (missing := absent("lora")):
        raise SettingsInvalid(
            f"lora.rank: {missing[0]} is not installed, it belongs to the extra lora: pip install 'claw-r1[lora]'"
        )

"""The model directories that a run reads, checked before torch is imported."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from claw_r1.trainer.errors import ModelInvalid
from claw_r1.trainer.learn import model

if TYPE_CHECKING:
    from claw_r1.trainer.settings import TrainerSettings


def check(settings: "TrainerSettings") -> None:
    """Raises ModelInvalid in one line for a directory that is no model, or one of another vocabulary than the policy's."""
    model.check(settings.model_dir)
    policys = vocabulary(settings.model_dir)
    for name, directory in beside_the_policy(settings):
        model.check(directory, name)
        refuse_other_vocabulary(name, directory, vocabulary(directory), policys)


def beside_the_policy(settings: "TrainerSettings") -> Iterator[tuple[str, Path]]:
    """Setting and directory of each model that is not the policy's initial weights."""
    if settings.has_critic and settings.critic.model_dir is not None:
        yield "critic.model_dir", settings.critic.model_dir
    if settings.reference.coefficient and settings.reference.model_dir is not None:
        yield "reference.model_dir", settings.reference.model_dir


def vocabulary(directory: Path) -> int | None:
    """Returns the vocabulary's size in config.json; None: it does not say it where text models do, and the loaded model
    will tell."""
    config = json.loads((directory / "config.json").read_text())
    size = config.get("vocab_size", config.get("text_config", {}).get("vocab_size"))
    return size if isinstance(size, int) else None


def refuse_other_vocabulary(name: str, directory: Path, size: int | None, policys: int | None) -> None:
    """Raises ModelInvalid unless both have as many tokens, or one is not known."""
    if size is not None and policys is not None and size != policys:
        raise ModelInvalid(f"{name} {directory} has {size} tokens and the policy has {policys}: they must be the same")

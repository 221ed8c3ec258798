"""Rules: Python functions of a subject, each in processes of its own.

`use`: `module:function`, `trl:module:function`, `verl:module:function`, or the name of an entry point of `claw.rewards`.
"""

import re
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from claw_r1.consumers.rewards.functions.workers import WorkerLimits, WorkerPool
from claw_r1.consumers.rewards.kinds import Kind, ScorerSettings

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bytes_of(size: object) -> object:
    """`512M` as a number; what is no size is left for pydantic to refuse."""
    parts = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", size.strip(), re.IGNORECASE) if isinstance(size, str) else None
    return int(parts[1]) * UNITS[parts[2].upper()] if parts else size


Bytes = Annotated[int, BeforeValidator(bytes_of)]


class FunctionSettings(ScorerSettings):
    """The settings of a rule."""

    INCIDENTAL: ClassVar[frozenset[str]] = ScorerSettings.INCIDENTAL | {"processes", "memory", "environment"}

    processes: int = Field(default=1, ge=1, le=64)
    """The number of processes side by side. A rule that waits for others (HTTP) wants several."""
    memory: Bytes = Field(default=4 << 30, ge=64 << 20)
    """Address space of each process: bytes, or with K, M, G."""
    environment: tuple[str, ...] = ()
    """Names of variables that the rule sees of ours, beside PATH, HOME and the language's."""
    text: bool = False
    """For trl: prompts and completions are strings, not lists of messages."""


def open_function(settings: FunctionSettings) -> WorkerPool:
    """Loads the rule in a process. Raises ConsumerError where there is none, or where it takes no subject."""
    limits = WorkerLimits(settings.timeout_s, settings.memory, settings.environment)
    return WorkerPool(settings.use, settings.scope, limits, settings.processes, as_text=settings.text)


KIND = Kind(FunctionSettings, open_function)

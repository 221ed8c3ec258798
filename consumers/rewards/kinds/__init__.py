"""Kinds of scorers. Adding one is one file here, with a `KIND` in it, and its word in `KINDS`."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from claw_r1.consumers.rewards.judged import Scope
from claw_r1.consumers.rewards.scorer import RewardScorer


class ScorerSettings(BaseModel):
    """The settings that every kind has. Docstrings of fields are their help."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
    SCOPES: ClassVar[tuple[Scope, ...]] = ("call", "next", "steps", "trajectory", "group")
    """The scopes that the kind can judge."""
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset({"generation", "timeout_s", "price_per_million"})
    """Fields that do not affect its rewards."""

    source: str
    """Before the slash of the slot."""
    name: str
    """Behind it."""
    use: str
    """The kind, and what it needs to know at once: `judge`, `pooling`, `sandbox:pytest`, `my_module:function`,
    `trl:module:function`."""
    version: int = Field(ge=1)
    """The version of the scorer, to be raised by every change of its verdicts: verdicts are kept, and asked for, by
    it."""
    generation: int = Field(default=0, ge=0)
    """The generation of verdicts, raised when history is scored again: 0 is live work."""
    scope: Scope
    """The subject of one verdict."""
    pure: bool = True
    """The verdict depends on content alone, so that equal content is judged once and
    history can be scored again."""
    timeout_s: float = Field(default=30.0, gt=0)
    """For one subject, tries and waiting included."""
    price_per_million: float | None = Field(default=None, ge=0)
    """Price of a million tokens, for the sums; in whatever currency."""

    @property
    def slot(self) -> str:
        """`source/name`."""
        return f"{self.source}/{self.name}"

    @property
    def digest(self) -> str:
        """sha256 hex of all that affects its rewards: its fields but `INCIDENTAL`, and the kind's other inputs."""
        fields = json.dumps(self.model_dump(mode="json", exclude=set(self.INCIDENTAL)), sort_keys=True)
        return hashlib.sha256(fields.encode() + b"\n" + self.beside()).hexdigest()

    def beside(self) -> bytes:
        """Returns the content beside the fields that verdicts depend on, such as a rubric."""
        return b""


@dataclass(frozen=True, slots=True)
class Kind:
    """The setup of one kind."""

    settings: type[ScorerSettings]
    open: Callable[[Any], RewardScorer]
    """Settings of that type to a scorer. Raises ConsumerError, in one line, where it cannot work."""


KINDS = {"judge": "judge", "pooling": "pooling", "sandbox": "sandbox"}
"""First word of `use` -> module of this package; everything else names a function: `function`."""


def kind_of(use: str) -> Kind:
    """Raises ImportError for a kind whose packages are not installed."""
    module = KINDS.get(use.partition(":")[0], "function")
    kind: Kind = import_module(f"claw_r1.consumers.rewards.kinds.{module}").KIND
    return kind

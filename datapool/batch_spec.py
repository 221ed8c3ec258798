"""What a batch is made of. One description serves the trainer, the dashboard's preview and the exporter.

Invariant: everything that decides whether a group is trained, and with which reward, stands here and not in the pool.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from datapool.errors import BatchSpecInvalid

Algorithm = Literal["grpo", "dr_grpo", "rloo", "reinforce_pp", "step_grpo", "sft"]
WITHOUT_GROUP_BASELINE = frozenset({"reinforce_pp", "sft"})
PRIORITY_TAG = "priority:"


class BatchSpec(BaseModel):
    """Frozen; unknown fields and contradictions are refused. `preset: NAME` stands for the fields of `PRESETS[NAME]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    algorithm: Algorithm = "grpo"
    """How rewards become advantages, see `datapool.advantages`."""
    groups_per_batch: int = Field(default=8, ge=1)
    group_size: int = Field(default=8, ge=1)
    """Trajectories of a group whose size nobody declared. A baseline over a group needs two."""
    staleness_max: int = Field(default=1, ge=0)
    """Versions that may lie between the oldest token of a group and the version that is trained."""
    channel: str = "train"
    tags: tuple[str, ...] = ()
    """A group must carry all of these."""
    reward_weights: Mapping[str, float] = Field(default_factory=dict)
    """`source/name` of a reward slot -> its weight in every return; `*` stands for all others (1 unless given).
    A slot of weight 0 is as if nobody had given it."""
    reward_mean_min: float | None = None
    """Groups whose mean return is lower are never trained (all failed); None: no threshold."""
    reward_mean_max: float | None = None
    """Groups whose mean return is higher are never trained (solved); None: no threshold."""
    return_min: float | None = None
    """Trajectories with a lower return count in baselines and are not trained; None: no threshold."""
    best_of: int | None = Field(default=None, ge=1)
    """So many trajectories of a group are trained, those with the highest returns (equal ones: first by id); None: all."""
    quality_min: float | None = None
    """Steps curated with a lower quality are context only. A step nobody judged passes."""
    zero_variance: Literal["keep", "drop"] = "keep"
    """Groups whose returns are all equal: kept with advantage 0 (they hold the batch size), or never trained."""
    response_tokens_max: int | None = Field(default=None, ge=1)
    """Sampled tokens that one batch trains at most; a batch that is full by this bound has fewer groups."""
    order: Literal["fifo", "newest", "priority"] = "fifo"
    """Which ready groups come first: the oldest, the newest, or those whose tag `priority:<number>` is highest (no such
    tag: 0; equal ones: the oldest)."""

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, raw: Any) -> Any:  # Any: whatever a file says
        if not isinstance(raw, dict) or "preset" not in raw:
            return raw
        name = raw["preset"]
        if name not in PRESETS:
            raise ValueError(f"no preset {name!r}; there are: {', '.join(PRESETS)}")
        return {**PRESETS[name], **{field: value for field, value in raw.items() if field != "preset"}}

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        low, high = self.reward_mean_min, self.reward_mean_max
        if low is not None and high is not None and low > high:
            raise ValueError(f"reward_mean_min {low} is above reward_mean_max {high}: no group could pass")
        if self.channel == "val":
            raise ValueError("channel val is for evaluation and is never trained")
        if self.group_size < self.members_min:
            raise ValueError(f"group_size {self.group_size}: the baseline of {self.algorithm} needs two trajectories")
        if wrong := sorted(name for name in self.reward_weights if name != "*" and "/" not in name):
            raise ValueError(f"reward_weights: {wrong[0]!r} is no source/name")
        return self

    @property
    def members_min(self) -> int:
        """Ready trajectories that the algorithm needs in a group."""
        return 1 if self.algorithm in WITHOUT_GROUP_BASELINE else 2

    def weight(self, source: str, name: str) -> float:
        """Of a reward slot."""
        return self.reward_weights.get(f"{source}/{name}", self.reward_weights.get("*", 1.0))

    def to_json(self) -> str:
        """Canonical JSON, as a plan carries it."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


PRESETS: Mapping[str, Mapping[str, Any]] = {  # Any: values of any field
    "grpo": {"algorithm": "grpo"},
    "dr_grpo": {"algorithm": "dr_grpo"},
    "rloo": {"algorithm": "rloo", "group_size": 4, "groups_per_batch": 16},
    "reinforce_pp": {"algorithm": "reinforce_pp", "group_size": 1, "groups_per_batch": 64},
    "step_grpo": {"algorithm": "step_grpo"},
    "sft_best": {"algorithm": "sft", "best_of": 1, "zero_variance": "drop", "staleness_max": 1_000_000},
}
"""Starting points; a file names one with `preset` and changes what it likes. 64 trajectories a batch each, SFT aside."""


def load(path: Path) -> BatchSpec:
    """A spec from a YAML or JSON file. Raises BatchSpecInvalid with one line that names the file and the field."""
    try:
        raw = yaml.safe_load(path.read_text())
        return BatchSpec.model_validate(raw if raw is not None else {})
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise BatchSpecInvalid(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        raise BatchSpecInvalid(f"{path}: {first_problem(error)}") from error


def first_problem(error: ValidationError) -> str:
    """The first problem of a validation in one line: `field: message`."""
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else problem["msg"]

"""What a batch is made of. One description serves the trainer, the dashboard's preview and the exporter.

Invariant: everything that decides whether a group is trained, and with which reward, stands here and not in the pool.
"""

import json
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from datapool.errors import BatchSpecInvalid


class BatchSpec(BaseModel):
    """Frozen; unknown fields and contradictions are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    algorithm: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    """How rewards of a group become advantages."""
    groups_per_batch: int = Field(default=8, ge=1)
    group_size: int = Field(default=8, ge=2)
    """Trajectories of a group whose size nobody declared. A baseline needs two."""
    staleness_max: int = Field(default=1, ge=0)
    """Versions that may lie between the oldest token of a group and the version that is trained."""
    channel: str = "train"
    tags: tuple[str, ...] = ()
    """A group must carry all of these."""
    reward_mean_min: float | None = None
    """Groups whose mean return is lower are never trained (all failed); None: no threshold."""
    reward_mean_max: float | None = None
    """Groups whose mean return is higher are never trained (solved); None: no threshold."""
    quality_min: float | None = None
    """Steps curated with a lower quality are context only. A step nobody judged passes."""
    zero_variance: Literal["keep", "drop"] = "keep"
    """Groups whose returns are all equal: kept with advantage 0 (they hold the batch size), or never trained."""
    response_tokens_max: int | None = Field(default=None, ge=1)
    """Sampled tokens that one batch trains at most; a batch that is full by this bound has fewer groups."""

    @model_validator(mode="after")
    def _thresholds_agree(self) -> Self:
        low, high = self.reward_mean_min, self.reward_mean_max
        if low is not None and high is not None and low > high:
            raise ValueError(f"reward_mean_min {low} is above reward_mean_max {high}: no group could pass")
        if self.channel == "val":
            raise ValueError("channel val is for evaluation and is never trained")
        return self

    def to_json(self) -> str:
        """Canonical JSON, as a plan carries it."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))


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

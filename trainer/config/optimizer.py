"""The optimizer: AdamW, its schedule, and what of DeepSpeed is set by hand."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

EARLIER = "earlier"
"""Key of a field's `json_schema_extra`: the value that runs of before the setting had."""


class OptimizerSettings(BaseModel):
    """The settings of the policy's optimizer; beside learning_rate, weight_decay and grad_clip."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW: decay of the mean of gradients."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """AdamW: decay of the mean of squared gradients."""
    epsilon: float = Field(default=1e-8, gt=0)
    """AdamW: added to the root of the mean of squared gradients."""
    decay: Literal["weights", "all"] = Field(default="weights", json_schema_extra={EARLIER: "all"})
    """The parameters that weight_decay acts on. weights: matrices; norms, biases and embeddings are left out. A run
    keeps its first setting."""
    offload: Literal["none", "cpu"] = "none"
    """The place of AdamW's state. cpu: host memory (ZeRO-Offload), at zero_stage 1, 2 or 3."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """The fall of the learning rate, as a function of the number of the optimizer step."""
    warmup_steps: int = Field(default=0, ge=0)
    """Optimizer steps over which the learning rate rises first."""
    decay_batches: int | None = Field(default=None, ge=1)
    """Batches after which linear and cosine have reached their end; the rate stays there."""
    floor: float = Field(default=0.0, ge=0, le=1)
    """The end of linear and cosine, as a share of the learning rate."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass instead of keeping them: less memory,
    about a third more time."""
    deepspeed: Path | None = None
    """JSON file of DeepSpeed's own settings, under those that are made of the settings here; a contradiction
    is refused."""

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        if self.schedule == "constant" and (self.decay_batches is not None or self.floor):
            raise ValueError("decay_batches and floor do nothing with schedule constant; take linear or cosine")
        if self.schedule != "constant" and self.decay_batches is None:
            raise ValueError(f"schedule {self.schedule} needs decay_batches: how many batches it falls over")
        return self

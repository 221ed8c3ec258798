"""LoRA: adapters of low rank beside the linear layers, which alone are trained."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

ALL_LINEAR = "all-linear"
RATE_FACTOR = 10
"""The best learning rate of LoRA over that of full training (Schulman et al. 2025, "LoRA Without Regret")."""


class LoraSettings(BaseModel):
    """See docs/lora.md. There is no dropout, for the engine has none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    rank: int = Field(default=0, ge=0)
    """Rank of the adapters (arXiv 2106.09685). 0: there are none, and every weight is trained."""
    alpha: int = Field(default=32, ge=1)
    """The product of an adapter's two matrices is multiplied by alpha / rank."""
    targets: tuple[str, ...] = Field(default=(ALL_LINEAR,), min_length=1)
    """Linear layers that get an adapter, by the ends of their names, such as q_proj.
    all-linear: every one but the head."""
    learning_rate: float | None = Field(default=None, ge=0)
    """Learning rate of the adapters. Not set: ten times `learning_rate`, which then keeps
    its meaning without LoRA."""

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        if not self.rank and self != LoraSettings.model_construct():
            raise ValueError("alpha, targets and learning_rate without a rank do nothing; set lora.rank")
        if ALL_LINEAR in self.targets and len(self.targets) > 1:
            raise ValueError(f"targets: {ALL_LINEAR} has all the others in it; drop it or them")
        return self

    def rate(self, full: float) -> float:
        """Returns the learning rate of what is trained; full: that of a run without LoRA."""
        if not self.rank:
            return full
        return RATE_FACTOR * full if self.learning_rate is None else self.learning_rate

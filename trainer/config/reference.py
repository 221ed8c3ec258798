"""The reference: a frozen model that the policy is held near."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ReferenceSettings(BaseModel):
    """The origin of the reference, and the cost of the distance from it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    coefficient: float = Field(default=0.0, ge=0)
    """The factor of the estimate of KL(policy || reference). 0: there is no reference."""
    model_dir: Path | None = None
    """Hugging Face model directory of the reference. Not set: the initial weights of the run."""
    place: Literal["loss", "reward"] = "loss"
    """The place where the estimate is charged: in the loss of each token, or off its reward. The latter changes
    advantages, which all algorithms but gae freeze in the plan."""
    kl: Literal["auto", "k1", "k2", "k3"] = "auto"
    """The estimate (docs/algorithms.md). auto: k3 in the loss and k1 in the reward."""

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        if self.place == "loss" and self.kl == "k1":
            raise ValueError(
                "kl k1 in the loss does nothing: its gradient is 0 on average; take k2, k3 or place: reward"
            )
        if not self.coefficient and (self.model_dir is not None or self.place != "loss" or self.kl != "auto"):
            raise ValueError("a reference without a coefficient does nothing; set reference.coefficient")
        return self

    @property
    def kl_name(self) -> str:
        """The estimator that `kl` names."""
        if self.kl != "auto":
            return self.kl
        return "k3" if self.place == "loss" else "k1"

    @property
    def in_loss(self) -> bool:
        """The loss has a term for it."""
        return self.coefficient > 0 and self.place == "loss"

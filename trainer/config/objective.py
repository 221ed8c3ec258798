"""Beyond loss, norm and clip: steps per batch, and the treatment of tokens that another policy sampled."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ObjectiveSettings(BaseModel):
    """See docs/algorithms.md."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    minibatches: int = Field(default=1, ge=1)
    """Parts of whole groups that a batch is dealt into; each is one optimizer step. All steps make one version."""
    epochs: int = Field(default=1, ge=1)
    """How often a batch is trained, dealt anew each time."""
    entropy_bonus: float = Field(default=0.0, ge=0)
    """The factor of the policy's entropy, which is then taken off the loss."""
    correction: Literal["none", "metrics", "tis", "decoupled", "icepop"] = "none"
    """The correction for the distance between the policy that
    sampled and the one that is trained, beyond the clip. tis
    truncates importance weights, decoupled clips against the
    policy before the batch, icepop leaves out tokens that the
    policies disagree on, metrics only measures."""
    correction_cap: float = Field(default=2.0, gt=1)
    """Importance weights of the correction are truncated here."""
    icepop_low: float = Field(default=0.5, gt=0, le=1)
    """Correction icepop leaves out tokens whose importance ratio
    is lower."""
    icepop_high: float = Field(default=5.0, ge=1)
    """Correction icepop leaves out tokens whose importance ratio
    is higher."""
    mask_below: float | None = Field(default=None, gt=0, lt=1)
    """A response is masked when the geometric mean of its importance ratios is lower. Not set: no bound."""
    mask_above: float | None = Field(default=None, gt=1)
    """A response is masked when the geometric mean of its importance ratios is higher. Not set: no bound."""
    stale_negatives: float | None = Field(default=None, gt=0)
    """A response with a negative advantage is masked when the
    mean of log(behaviour / policy) over its tokens is higher.
    Not set: no bound."""
    silent_sample: int = Field(default=16, ge=1)
    """Rows without gradient (advantage 0) are not computed; so many of them per optimizer step are scored for
    the metrics."""

    @property
    def mask(self) -> tuple[float, float] | None:
        """Bounds of the geometric mean; None: nothing is masked."""
        if self.mask_below is None and self.mask_above is None:
            return None
        return self.mask_below or 0.0, self.mask_above or float("inf")

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        if self.correction in ("none", "icepop") and self.correction_cap != 2.0:
            raise ValueError(
                f"correction_cap does nothing with {self.correction}; set objective.correction to tis or decoupled"
            )
        if self.correction != "icepop" and (self.icepop_low, self.icepop_high) != (0.5, 5.0):
            raise ValueError(
                f"icepop_low and icepop_high do nothing with {self.correction}; set objective.correction: icepop"
            )
        return self

    @property
    def needs_ratio(self) -> str | None:
        """The first setting that is only for a loss with an importance ratio; None: there is none."""
        if self.correction != "none":
            return f"objective.correction {self.correction}"
        if self.stale_negatives is not None:
            return "objective.stale_negatives"
        return None if self.mask is None else "objective.mask_below and mask_above"

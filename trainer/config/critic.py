"""The critic of PPO: how it is trained, and how its values become advantages."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class CriticSettings(BaseModel):
    """The settings of algorithm gae alone, which has a critic by default."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    model_dir: Path | None = None
    """Hugging Face model directory that the critic starts from. Of a language model the trunk is taken, with a scalar head at
    zero; of a model with one score the head, too. Not set: the policy's initial weights."""
    learning_rate: float | None = Field(default=None, ge=0)
    """Learning rate of AdamW. Not set: ten times the policy's, since values have further to
    go than probabilities."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay of AdamW."""
    grad_clip: float = Field(default=1.0, gt=0)
    """Largest global gradient norm."""
    clip: float = Field(default=0.2, gt=0)
    """The value loss is not rewarded for values that moved further than this since the batch began."""
    warmup_batches: int = Field(default=0, ge=0)
    """First batches of the critic, which train it alone; the policy's weights stay as they are."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount from one trained token to the next of the same response."""
    turn_gamma: float | None = Field(default=None, ge=0, le=1)
    """Discount from the last token of a response to the first of the next. Not set: `gamma`."""
    lam: float = Field(default=0.95, ge=0, le=1)
    """Lambda of generalised advantage estimation: 1 uses the earned return, 0 the critic's
    value one token later."""
    whiten: bool = True
    """The advantages are given mean 0 and deviation 1 over the trained tokens of the batch."""

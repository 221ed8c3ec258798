"""Settings of the quality consumer."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from datapool.fold.curation import SCORER_REVISION_MAX

REVISIONS = 2
"""Of a generation: of captures that broke off, and of completed ones, whose score counts before."""


class QualitySettings(BaseSettings):
    """Environment: `CLAW_QUALITY_<FIELD>`."""

    model_config = SettingsConfigDict(env_prefix="CLAW_QUALITY_", frozen=True, extra="forbid")

    scorers: tuple[str, ...] = Field(default=("length", "repetition", "format", "tool_calls"), min_length=1)
    """Names of `consumers.quality.scorers.SCORERS`, or `module:name` of a Scorer of one's own."""
    generation: int = Field(default=0, ge=0, le=SCORER_REVISION_MAX // REVISIONS - 1)
    """Of several panels the higher generation wins; raise it when another panel takes over."""
    commit_interval_s: float = Field(default=5.0, gt=0)
    """How often offsets are committed; after a crash that much is scored again, to the same events."""
    requests_bytes_max: int = Field(default=256 << 20, ge=0)
    """Of requests in memory, against which later ones are written; those that are crowded out are read from the log again."""
    records_max: int = Field(default=500, ge=1)
    """Records of one poll, whose scores are awaited together."""

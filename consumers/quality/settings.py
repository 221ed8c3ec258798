"""Settings of the quality consumer."""

from typing import ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from claw_r1.datapool.fold.curation import SCORER_REVISION_MAX

REVISIONS = 2
"""The revisions of a generation: of captures that broke off, and of completed ones, whose score counts before."""


class QualitySettings(BaseSettings):
    """Environment: `CLAW_QUALITY_<FIELD>`."""

    model_config = SettingsConfigDict(
        env_prefix="CLAW_QUALITY_",
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        cli_shortcuts={"scorers": "scorer"},
    )
    FLAG_SECTIONS: ClassVar[dict[str, str]] = {"scorers": "scoring"}

    scorers: tuple[str, ...] = Field(default=("length", "repetition", "format", "tool_calls"), min_length=1)
    """Scorer of the panel: length, repetition, entropy, format, tool_calls, or module:name of one of your own. In the
    environment a JSON list."""
    generation: int = Field(default=1, ge=0, le=SCORER_REVISION_MAX // REVISIONS - 1)
    """Generation of the panel. Scores of a higher generation win; raise it when another panel takes over, as this default did
    with `length@2`."""
    commit_interval_s: float = Field(default=5.0, gt=0)
    """Time between two commits of offsets. After a crash, calls of that time are scored
    again, to the same events."""
    requests_bytes_max: int = Field(default=256 << 20, ge=0)
    """Bytes of requests in memory, which later ones are differences to. Others are read from the log again."""
    records_max: int = Field(default=500, ge=1)
    """Records of one poll, whose scores are awaited together."""

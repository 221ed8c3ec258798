"""Limits of the agents' side, read once from CLAW_AGENTFLOW_*."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class AgentFlowSettings(BaseSettings):
    """How long the agents wait, for what."""

    model_config = SettingsConfigDict(env_prefix="CLAW_AGENTFLOW_", frozen=True)

    request_timeout_s: float = Field(default=120.0, gt=0)
    """One attempt of one request, the model's thinking included."""

    retry_budget_s: float = Field(default=60.0, ge=0)
    """Counted from the first failure of a request; longer than a restart of the gateway."""

    retry_pause_s: float = Field(default=0.1, gt=0)
    """Pause after the first failure; it doubles up to `retry_pause_max_s`. A Retry-After of the gateway wins."""

    retry_pause_max_s: float = Field(default=2.0, gt=0)
    """Bounds every pause, a Retry-After too."""

    drain_timeout_s: float = Field(default=5.0, ge=0)
    """After a stop, running episodes may take this long to end by themselves."""

    farewell_timeout_s: float = Field(default=1.0, gt=0)
    """A cancelled episode may take this long to report itself as failed."""

    stats_interval_s: float = Field(default=1.0, gt=0)
    """How often the statistics file is written."""

    progress_interval_s: float = Field(default=5.0, gt=0)
    """How often a run says on stderr how far it is."""

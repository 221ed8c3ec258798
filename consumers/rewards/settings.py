"""Settings of a process of scorers; its slots are in rewards.yaml (`config.py`)."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from claw_r1.runtime.monitoring.server import MetricsHost, MetricsPort


class RewardsSettings(BaseSettings):
    """Environment: `CLAW_REWARDS_<FIELD>`."""

    model_config = SettingsConfigDict(
        env_prefix="CLAW_REWARDS_", frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    config: Path = Path("rewards.yaml")
    """File with the scorers: docs/rewards.md."""
    metrics_port: MetricsPort = None
    metrics_host: MetricsHost = "127.0.0.1"
    records_max: int = Field(default=100, ge=1)
    """Records of one poll of a slot, whose subjects are judged at once."""
    commit_interval_s: float = Field(default=2.0, gt=0)
    """Time between two commits of offsets. After a crash, subjects of that time are looked up again, and not
    judged again."""
    work_timeout_s: float = Field(default=600.0, ge=6)
    """The time that the subjects of one poll may take; a member that is silent for longer gives its partitions to
    others."""
    stop_grace_s: float = Field(default=5.0, ge=0)
    """The time that a stop waits for verdicts in the making; what is not there by then is asked again by the next
    process."""
    call_bytes_max: int = Field(default=1_500_000, ge=1)
    """Bytes of a request and its reply; a subject with a larger call is not judged (`too_large`)."""
    subject_bytes_max: int = Field(default=64 << 20, ge=1)
    """Bytes of all requests and replies of a subject."""
    requests_bytes_max: int = Field(default=128 << 20, ge=0)
    """Bytes of calls in memory per slot, which later ones are differences to. Others are
    read from the log again."""

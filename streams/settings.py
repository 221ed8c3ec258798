"""Settings of the streams worker. Nothing here may change a record: folds read no setting."""

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class StreamsSettings(BaseSettings):
    """Settings `CLAW_STREAMS_*`."""

    model_config = SettingsConfigDict(env_prefix="CLAW_STREAMS_", frozen=True, extra="ignore")

    flush_interval_s: float = Field(0.1, gt=0, le=10)
    """Time between two transactions of a partition: adds to the latency of the pool."""
    flush_behind_s: float = Field(2.0, gt=0, le=60)
    """The same while fetched facts wait to be folded, if it is longer: a row that changes often is then written once."""
    flush_events_max: int = Field(4000, ge=1)
    """Folded facts, over all partitions, that make a flush without waiting for the interval."""
    flush_bytes_max: int = Field(64 << 20, ge=1)
    """Bytes of folded facts that do the same: their tokens are in memory until then."""
    session_timeout_s: float = Field(10.0, ge=1)
    """Silence after which the group gives this worker's partitions away."""
    heartbeat_interval_s: float = Field(2.0, gt=0)
    """Time between two signs of life to the group."""
    transaction_timeout_ms: int = Field(60_000, ge=1000)
    """How long a dead owner's open transaction may hold up readers; also how long a broker outage may last."""
    group_instance_id: str | None = None
    """A name that survives restarts makes the member static: its partitions wait for it until the session ends."""
    reactors_enabled: bool = True
    """Whether this worker abandons and closes; off during a rebuild."""
    reactor_interval_s: float = Field(1.0, gt=0)
    """Time between two looks at the clock."""
    trajectory_idle_timeout_s: float = Field(1800.0, gt=0)
    """An open trajectory without any fact for this long is abandoned; a declared group likewise is closed."""
    retention_s: float | None = Field(None, gt=0)
    """Groups without any fact for this long are evicted: out of the pool, not out of the facts; none: kept for ever."""
    retention_interval_s: float = Field(10.0, gt=0)
    """Time between two looks for groups that are too old; each takes so many of every partition, the oldest first."""
    watchdog_interval_s: float = Field(5.0, gt=0)
    """Time between two looks at the lag."""
    watchdog_stall_s: float = Field(60.0, gt=0)
    """Facts waiting for this long while none is folded: exit, to be started again."""
    metrics_port: int | None = Field(None, ge=0, le=65_535)
    """Port for Prometheus; none: not served."""

    @model_validator(mode="after")
    def _heartbeats_fit_into_session(self) -> "StreamsSettings":
        if self.heartbeat_interval_s * 2 > self.session_timeout_s:
            raise ValueError(
                f"heartbeat_interval_s {self.heartbeat_interval_s} must be at most half of "
                f"session_timeout_s {self.session_timeout_s}"
            )
        return self

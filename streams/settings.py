"""Settings of the streams worker. Nothing here may change a record: folds read no setting."""

from typing import ClassVar, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from claw_r1.runtime.monitoring.server import MetricsHost, MetricsPort


class StreamsSettings(BaseSettings):
    """Settings `CLAW_STREAMS_*`."""

    model_config = SettingsConfigDict(
        env_prefix="CLAW_STREAMS_",
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
        cli_shortcuts={"reactors-enabled": "reactors"},
    )
    FLAG_SECTIONS: ClassVar[dict[str, str]] = {
        "fetch_interval_s": "fetches, and flushes of the pool",
        "group_instance_id": "the consumer group",
        "reactors_enabled": "decisions driven by a clock",
        "watchdog_interval_s": "watching",
    }

    fetch_interval_s: float = Field(0.05, ge=0, le=1)
    """Pause between a fetch that was answered and the next: facts that come meanwhile come together, with less work for worker and
    broker. It adds to the latency of the pool; 0: each fact comes at once."""
    flush_interval_s: float = Field(0.1, gt=0, le=10)
    """Time between two transactions of a partition. It adds to the latency of the pool."""
    flush_waiting_s: float = Field(0.25, gt=0, le=60)
    """The same, if longer, while every changed group waits for members to end: none can be trained on yet, and a row that
    changes often is then written once."""
    flush_behind_s: float = Field(2.0, gt=0, le=60)
    """The same, if it is longer, while fetched facts wait to be folded."""
    flush_events_max: int = Field(4000, ge=1)
    """Folded facts, over all partitions, that make a flush without waiting for the interval."""
    flush_bytes_max: int = Field(64 << 20, ge=1)
    """Bytes of folded facts that make a flush likewise: their tokens are in memory until then."""

    group_instance_id: str | None = None
    """Name of this member that survives restarts (static membership): its partitions wait for it until its session
    ends. Not set: the partitions of a worker that leaves are given away at once."""
    session_timeout_s: float = Field(10.0, ge=1)
    """Silence after which the group gives this worker's partitions away."""
    heartbeat_interval_s: float = Field(2.0, gt=0)
    """Time between two heartbeats to the group, at most half of `session_timeout_s`."""
    transaction_timeout_ms: int = Field(60_000, ge=1000)
    """How long the open transaction of a dead owner may hold up readers, and so how long a
    broker outage may last."""

    keep_interval_s: float = Field(10.0, gt=0)
    """Time between two saves of the pool's rows of this worker's partitions (in `CLAW_LOG_VIEWS_DIR`), from which its
    next start resumes. After a kill it reads the rows of up to two intervals again."""
    standby: int = Field(0, ge=0, le=1)
    """1: this worker keeps copies of the pool's rows of the partitions that come to it when another worker leaves, so that
    a takeover reads only the rows written since. Disk and reading for up to two more than twice as many partitions as it
    owns; for all of them, where it owns none."""

    reactors_enabled: bool = True
    """The worker abandons trajectories and closes groups that are overdue. Switch it off to fold only."""
    reactor_interval_s: float = Field(1.0, gt=0)
    """Time between two checks for overdue work."""
    trajectory_idle_timeout_s: float = Field(1800.0, gt=0)
    """An open trajectory without any fact for this long is abandoned; a declared group without any is closed."""
    retention_s: float | None = Field(None, gt=0)
    """Groups without any fact for this long are evicted from the pool; a stub and their facts stay. What comes
    for them later is ignored. Not set: groups are kept for ever."""
    retention_interval_s: float = Field(10.0, gt=0)
    """Time between two looks for groups to evict. Each look takes a bounded number per
    partition, the oldest first."""

    watchdog_interval_s: float = Field(5.0, gt=0)
    """Time between two looks at the lag."""
    watchdog_stall_s: float = Field(60.0, gt=0)
    """A worker exits, to be started again, when facts have waited for this long and none was folded."""
    metrics_port: MetricsPort = None
    metrics_host: MetricsHost = "127.0.0.1"

    @model_validator(mode="after")
    def _heartbeats_fit_into_session(self) -> Self:
        if self.heartbeat_interval_s * 2 > self.session_timeout_s:
            raise ValueError(
                f"heartbeat_interval_s {self.heartbeat_interval_s} must be at most half of "
                f"session_timeout_s {self.session_timeout_s}"
            )
        return self

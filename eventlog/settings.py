"""The settings of the log and of our waiting for it. Reading these settings needs no Kafka client."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from claw_r1.eventlog.security import LogSecurity
from claw_r1.schemas.topics import Catalogue


def _kafka_servers() -> str:
    return os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092")


class LogSettings(LogSecurity):
    """Settings `CLAW_LOG_*`; the broker's address also comes from `KAFKA_BOOTSTRAP_SERVERS`."""

    model_config = SettingsConfigDict(
        env_prefix="CLAW_LOG_",
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
        cli_shortcuts={"bootstrap-servers": "bootstrap"},
    )
    FLAG_SECTIONS: ClassVar[dict[str, str]] = {
        "security_protocol": "access to Kafka",
        "bootstrap_servers": "log (Kafka)",
    }

    bootstrap_servers: str = Field(default_factory=_kafka_servers, min_length=1, validate_default=True)
    """host:port of one or more brokers, comma-separated. Not set: KAFKA_BOOTSTRAP_SERVERS, else 127.0.0.1:9092."""
    prefix: str = Field(default="claw", pattern=r"^[A-Za-z0-9._-]+$", max_length=200)
    """Front of every topic name: one installation, or one generation of the partition count."""
    partitions: int = Field(default=32, ge=1)
    """Partitions of every topic; never changed for a prefix once topics exist."""
    replication: int = Field(default=1, ge=1)
    """Copies of every topic; 3 outside the local stack."""
    generation: int = Field(default=1, ge=1)
    """The generation of the pool: streams and readers of a generation know no other. `claw rebuild` makes the next
    one."""
    ack_timeout_ms: int = Field(default=10_000, ge=100)
    """How long a record may wait for its acknowledgement, queueing included."""
    linger_ms: float = Field(default=0.5, ge=0, le=1000)
    """How long a producer gathers records for one request; adds to the latency of every reply."""
    compression: Literal["none", "lz4", "zstd"] = "zstd"
    """The compression of what a producer sends, and so of what the broker keeps; readers take any."""
    connect_timeout_s: float = Field(default=8.0, gt=0)
    """How long a metadata request may take before the broker counts as unreachable."""
    read_timeout_s: float = Field(default=30.0, gt=0)
    """How long a bounded read may go without any progress."""
    commit_timeout_s: float = Field(default=120.0, gt=0)
    """How long a transaction is opened, committed or replayed before its owner gives up."""
    fetch_wait_ms: int = Field(default=100, ge=1)
    """How long the broker holds a fetch that finds nothing; records that arrive are sent at once."""
    views_dir: Path | None = None
    """Folder on a local disk in which rows of the pool are kept between two starts (lists, a trainer's, a stream
    worker's), so that a start reads what came since; `claw` takes `views` in its home."""
    views_cache_mb: float = Field(default=4, gt=0)
    """The most that a trainer's view of the pool keeps decoded in memory, in MB of the log; the rest is read
    from its file."""
    client_config: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """More librdkafka settings as a JSON object, which streams' own
    client does not know; never logged."""

    @model_validator(mode="after")
    def _sendable(self) -> "LogSettings":
        self.refuse_cleartext(self.bootstrap_servers)
        if self.linger_ms >= self.ack_timeout_ms:
            raise ValueError(f"linger_ms {self.linger_ms} must be below ack_timeout_ms {self.ack_timeout_ms}")
        return self

    def catalogue(self) -> Catalogue:
        """The topics of this installation."""
        return Catalogue(
            prefix=self.prefix, partitions=self.partitions, replication=self.replication, generation=self.generation
        )

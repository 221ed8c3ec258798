"""Settings of the gateway, read once. Environment: CLAW_GATEWAY_<FIELD>."""

import uuid
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

MIB = 1 << 20


class GatewaySettings(BaseSettings):
    """How the gateway listens, routes, limits and waits."""

    model_config = SettingsConfigDict(env_prefix="CLAW_GATEWAY_", frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    """Address to listen on. There is no authentication yet: anything but loopback is the operator's decision."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    instance: str = Field(default_factory=lambda: uuid.uuid4().hex[:6], min_length=1, max_length=64)
    """Names this process in the events it makes: `gateway/<instance>`."""
    upstreams: Annotated[tuple[str, ...], NoDecode] = ()
    """Fixed servers (comma-separated in the environment); empty: live workers from the log."""
    upstream_token_ids: bool = True
    """Ask fixed servers for token ids. Switch off for providers that refuse fields they do not know."""
    body_bytes_max: int = Field(4 * MIB, gt=0)
    """Largest request body of a model call."""
    control_bytes_max: int = Field(MIB, gt=0)
    """Largest body of a lifecycle, reward or group request."""
    reply_bytes_max: int = Field(32 * MIB, gt=0)
    """Largest reply taken from an engine."""
    calls_max: int = Field(4096, gt=0)
    """Model calls in flight; more are refused with 503."""
    worker_wait_s: float = Field(30.0, ge=0)
    """How long a call waits for an engine: none known yet, or the one it had is restarting."""
    worker_ttl_s: float = Field(15.0, gt=0)
    """A worker whose newest report is older (by the record's timestamp) takes no traffic."""
    connect_timeout_s: float = Field(5.0, gt=0)
    """For one connection to an engine."""
    upstream_timeout_s: float = Field(600.0, gt=0)
    """For one reply of an engine."""
    resends_max: int = Field(2, ge=0)
    """How often a call is sent again after an engine had it and broke: one that kills engines must not kill all."""
    retry_wait_s: float = Field(0.1, gt=0)
    """First wait before an engine is tried again; doubles up to `retry_wait_max_s`."""
    retry_wait_max_s: float = Field(2.0, gt=0)
    """Longest wait between two tries."""
    admission_retry_after_s: float = Field(0.2, gt=0)
    """What a runner is told to wait when its group is not admitted yet."""
    replay_window_s: float = Field(300.0, ge=0)
    """How long a finished reply is kept for a client that retries because it never saw it."""
    replay_entries_max: int = Field(10_000, ge=0)
    """Calls remembered for retries."""
    replay_bytes_max: int = Field(64 * MIB, ge=0)
    """Bytes of replies (and of events not yet acknowledged) remembered for retries."""
    shutdown_grace_s: int = Field(30, ge=0)
    """After SIGTERM: how long calls in flight may take to finish."""

    @field_validator("upstreams", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("upstreams")
    @classmethod
    def _plain_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("an upstream is http://host[:port][/v1]")
            # Upstream URLs are stored in every event: a password in one would be stored with them.
            if parts.username or parts.password or parts.query or parts.fragment:
                raise ValueError("an upstream URL must hold no credentials, query or fragment")
        return tuple(url.rstrip("/") for url in urls)

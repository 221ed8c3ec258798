"""Settings of the gateway, read once. Environment: CLAW_GATEWAY_<FIELD>."""

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, FiniteFloat, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from claw_r1.runtime.tls.doors import DoorTls
from claw_r1.schemas.api_keys import is_loopback, parse_key

MIB = 1 << 20
SamplingName = Literal[
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"
]


class GatewaySettings(DoorTls):
    """The settings by which the gateway listens, routes, limits and waits."""

    model_config = SettingsConfigDict(
        env_prefix="CLAW_GATEWAY_",
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        cli_shortcuts={"upstreams": "upstream"},
    )
    FLAG_SECTIONS: ClassVar[dict[str, str]] = {
        "host": "where it listens, and who may call",
        "upstreams": "engines",
        "aliases": "changes to requests before they reach an engine",
        "resends_max": "when an engine breaks",
        "connections_max": "limits",
        "replay_window_s": "clients that retry",
        "spool_dir": "capture",
        "shutdown_grace_s": "shutdown",
    }

    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback needs `api_keys`."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    public_url: str | None = None
    """URL by which clients reach this gateway behind a proxy, for the `base_url` in the reply of /init_trajectory.
    Not set: the scheme of this door and the Host of the request."""
    instance: str = Field(default_factory=lambda: uuid.uuid4().hex[:6], min_length=1, max_length=64)
    """Name of this process in the events it makes: gateway/<instance>. Not set: six random characters."""
    api_keys: Annotated[tuple[str, ...], NoDecode] = Field((), repr=False)
    """The keys that may call besides those of `claw keys`: agent:<sha256> or operator:<sha256> of each key, separated
    by commas; --new-key makes one. Not set: everybody on this machine, and nobody from outside."""
    reward_sources: Annotated[tuple[str, ...], NoDecode] = ("agent", "env", "user")
    """Sources that rewards of callers without a key, and with one of the role agent, may have, separated by commas. Never
    rule, judge or human:*, which are scorers' and people's."""
    access_log: bool = False
    """Write one log line per request, without bodies, queries and headers."""
    workers: int = Field(1, ge=1, le=256)
    """Processes that serve the port."""
    metrics_port: int | None = Field(None, ge=1, le=65535)
    """A second port on `host` for /metrics, /livez and /readyz, without keys. With several processes, process k listens on the k-th
    port from there. Not set: /metrics is on `port`."""

    upstreams: Annotated[tuple[str, ...], NoDecode] = ()
    """URL of a fixed engine; in the environment, several are separated by commas. Not set: the live rollout workers that
    the log names."""
    upstream_authorization: bool | None = None
    """Pass a client's Authorization and x-api-key headers on to fixed engines. Not set: only where all of them are on one
    host, since a key for one provider is not for another."""
    worker_wait_s: float = Field(30.0, ge=0)
    """How long a call waits for an engine while none is known, or while its own restarts."""
    worker_ttl_s: float = Field(15.0, gt=0)
    """A worker whose newest report is older than this (by the record's timestamp) gets no calls."""
    connect_timeout_s: float = Field(5.0, gt=0)
    """How long opening a connection to an engine may take."""
    upstream_timeout_s: float = Field(600.0, gt=0)
    """How long an engine may take for a reply; of a stream, for its first bytes."""
    stream_idle_timeout_s: float = Field(120.0, gt=0)
    """How long an engine may be silent in the middle of a stream. Checked once per such interval, so a stream may be
    silent for up to twice as long. Keep it above the time that a weight sync pauses an engine."""
    stream_timeout_s: float = Field(3600.0, gt=0)
    """How long a whole stream may take."""

    aliases: Annotated[Mapping[str, str], NoDecode] = Field(default_factory=dict)
    """Models by the names that clients request: `asked=served`, separated by commas, * in `asked` for anything. An
    alias counts if no live worker serves the name itself and the client's key has no alias for it."""
    sampling: Annotated[Mapping[SamplingName, FiniteFloat], NoDecode] = Field(default_factory=dict)
    """Sampling parameters that win over the client's: `temperature=1,top_p=1`. A key's own win over these."""
    strip_strict: bool = False
    """Remove `strict` from tools, so that no grammar constrains sampling."""

    resends_max: int = Field(2, ge=0)
    """How often a call is sent again after its engine broke. It is bounded because the call
    itself may be the cause."""
    retry_wait_s: float = Field(0.1, gt=0)
    """First wait before an engine is tried again. It doubles up to `retry_wait_max_s`."""
    retry_wait_max_s: float = Field(2.0, gt=0)
    """Longest wait between two tries."""

    connections_max: int = Field(10_000, gt=0)
    """Clients connected to one process; more are refused with 503."""
    calls_max: int = Field(4096, gt=0)
    """Model calls in flight; more are refused with 503."""
    headers_bytes_max: int = Field(32 << 10, gt=0)
    """Largest headers of a request, all together."""
    headers_timeout_s: float = Field(20.0, gt=0)
    """How long a client may take to send the headers of a request."""
    body_bytes_max: int = Field(4 * MIB, gt=0)
    """Largest request body of a model call."""
    body_timeout_s: float = Field(60.0, gt=0)
    """How long a client may take to send its body."""
    control_bytes_max: int = Field(MIB, gt=0)
    """Largest body of a lifecycle, reward or group request."""
    reply_bytes_max: int = Field(32 * MIB, gt=0)
    """Largest reply taken from an engine."""
    write_timeout_s: float = Field(60.0, gt=0)
    """How long a client may leave a reply unread once its buffers are full."""
    held_bytes_max: int = Field(1024 * MIB, gt=0)
    """Bytes of requests and replies that all calls in flight may hold together; beyond it, requests are refused with
    503. A process needs several times as much memory: requests are forwarded, replies are parsed, and both are written
    to the log."""

    replay_window_s: float = Field(300.0, ge=0)
    """How long a finished reply is kept, from when it was made, for a client that retries
    because it never got it."""
    replay_entries_max: int = Field(10_000, ge=0)
    """Calls remembered for retries."""
    replay_bytes_max: int = Field(64 * MIB, ge=0)
    """Bytes of replies, and of events not yet acknowledged, that are remembered for retries."""
    admission_retry_after_s: float = Field(0.2, gt=0)
    """How long a runner is asked to wait before it tries again to open a group that was not admitted."""

    spool_dir: Path = Field(default_factory=lambda: Path(os.environ.get("CLAW_HOME") or ".claw") / "spool")
    """Directory where events wait while the log is away, on a local disk that outlives the process. Prompts lie there
    unencrypted. Not set: spool in $CLAW_HOME, or in .claw."""
    spool_bytes_max: int = Field(4096 * MIB, gt=0)
    """Largest spool of one process. Beyond it a call that is not acknowledged is refused or lost, as
    `capture_on_failure` says."""
    spool_timeout_s: float = Field(10.0, gt=0)
    """How long the spool's disk may take to write one event."""
    capture_on_failure: Literal["refuse", "availability"] = "refuse"
    """The fate of a call that neither log nor spool takes. refuse: its reply is kept back (503). availability: the
    reply is sent, and the call is counted as lost."""
    parent_bytes_max: int = Field(256 * MIB, ge=0)
    """Bytes of recent calls that later calls are written against, as differences; 0 writes every call in full."""
    parent_calls_max: int = Field(8, ge=1)
    """Branches remembered per trajectory for those differences."""

    shutdown_grace_s: int = Field(30, ge=0)
    """How long calls in flight may take to finish after SIGTERM."""
    shutdown_linger_s: float = Field(1.0, ge=0)
    """How long an idle connection is still answered after SIGTERM, with connection: close, so that no request is cut
    off by our closing it."""

    @property
    def passes_authorization(self) -> bool:
        """The fixed servers get the client's credentials."""
        if self.upstream_authorization is None:
            return len({urlsplit(url).hostname for url in self.upstreams}) <= 1
        return self.upstream_authorization

    @field_validator("upstreams", "api_keys", "reward_sources", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("aliases", "sampling", mode="before")
    @classmethod
    def _paired(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if not all(name.strip() and word.strip() for name, _, word in pairs):
            raise ValueError("it is written NAME=VALUE, separated by commas")
        return {name.strip(): word.strip() for name, _, word in pairs}

    @field_validator("api_keys")
    @classmethod
    def _hashed_keys(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            parse_key(entry)
        return entries

    @field_validator("public_url")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        if url is not None and not (urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname):
            raise ValueError("it is http://host[:port][/path] or https://…")
        return url and url.rstrip("/")

    @field_validator("reward_sources")
    @classmethod
    def _agents_sources(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        trusted = [source for source in sources if source in ("rule", "judge") or source.startswith("human:")]
        if trusted:
            raise ValueError(f"{trusted[0]} is a scorer's or a person's: its writer has a key of its own")
        return sources

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not (self.api_keys or is_loopback(self.host)):
            raise ValueError(
                f"host {self.host} can be reached from outside: set CLAW_GATEWAY_API_KEYS, or use 127.0.0.1"
            )
        if self.held_bytes_max < self.body_bytes_max:
            raise ValueError("held_bytes_max is below body_bytes_max: the largest request would never find room")
        return self

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

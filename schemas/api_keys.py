"""API keys, of which only hashes are known here. A key is 256 random bits, so one round of SHA-256 leaves
nothing to guess."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from typing import Literal, cast
from urllib.parse import urlsplit

Role = Literal["agent", "annotator", "reader", "operator"]
Act = Literal["call", "live", "judge", "speak", "read", "operate"]
"""The act of a request: a model call; groups and the life of trajectories; rewards; people's words; what changes
nothing; the metrics."""
MAY: Mapping[Act, tuple[Role, ...]] = {
    "call": ("agent", "operator"),
    "live": ("agent", "operator"),
    "judge": ("agent", "annotator", "operator"),
    "speak": ("annotator", "operator"),
    "read": ("agent", "annotator", "reader", "operator"),
    "operate": ("operator",),
}
"""Act -> the roles that may do it."""
CONFIGURED = re.compile(r"(agent|operator):([0-9a-f]{64})")
OURS = re.compile(rb"claw-(agent|annotator|reader|operator)-[\w-]{43}")
"""The pattern of the keys that `new_key` makes."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key, by its hash. What its calls are besides stands in `KeyRecorded`, field by field."""

    role: Role
    digest: bytes
    name: str = ""
    expires_us: int | None = None
    """UTC microseconds, from when it is not valid; None: never."""
    revoked: bool = False
    scope: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    sampling: Mapping[str, float] = field(default_factory=dict)
    strip_strict: bool = False
    idle_s: float | None = None

    @property
    def label(self) -> str:
        """By what people tell it from others: its name, else the first 16 hex digits of its hash."""
        return self.name or self.digest.hex()[:16]

    @property
    def is_narrow(self) -> bool:
        """Returns whether it reaches nothing but what begins with its scope."""
        return bool(self.scope) or self.idle_s is not None

    def why_invalid(self, at_us: int) -> str | None:
        """Returns why the key opens nothing at this time (UTC microseconds), in words for who has it; None: it is valid."""
        if self.revoked:
            return "this API key was revoked"
        return "this API key has expired" if self.expires_us is not None and self.expires_us <= at_us else None


def new_key(role: Role) -> tuple[str, str]:
    """A fresh key for a client, and the entry for `CLAW_GATEWAY_API_KEYS`."""
    key = f"claw-{role}-{secrets.token_urlsafe(32)}"
    return key, f"{role}:{sha256(key.encode()).hexdigest()}"


def parse_key(entry: str) -> ApiKey:
    """`<role>:<sha256 of the key in hex>`. Raises ValueError, which does not repeat the entry."""
    match = CONFIGURED.fullmatch(entry)
    if match is None:
        raise ValueError("a key is agent:<sha256 in hex> or operator:<sha256 in hex>; make one with --new-key")
    return ApiKey(cast("Role", match[1]), bytes.fromhex(match[2]))


@lru_cache(maxsize=1024)
def names_loopback(authority: str) -> bool:
    """Returns whether `host[:port]`, or an origin, names this machine. It is the name that a browser used, not the
    address that it reached."""
    try:
        host = urlsplit(authority if "://" in authority else f"//{authority}").hostname or ""
    except ValueError:
        return False
    return is_loopback(host) or host.endswith(".localhost")


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False

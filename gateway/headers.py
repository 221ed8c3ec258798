"""The headers by which a client describes its call, and those in which the gateway answers.

Invariant: only the headers named here, and in `callers/caller_headers.py` (who calls), are read. Authorization, cookies and API
keys are never looked at, with one exception: `authorization` and `x-api-key` of a call to a fixed upstream are passed on
and go nowhere else.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.paths import CONTROL, Identity
from claw_r1.schemas.api_keys import ApiKey
from claw_r1.schemas.events import VersionSpan
from claw_r1.schemas.http import (
    AGENT_HEADER,
    CALL_ID_HEADER,
    CHANNEL_HEADER,
    GROUP_HEADER,
    IDEMPOTENCY_KEY_HEADER,
    OVERHEAD_MS_HEADER,
    POLICY_VERSION_HEADER,
    RETRY_COUNT_HEADER,
    RUN_ID_HEADER,
    TAGS_HEADER,
    TAGS_MAX,
    TRAJECTORY_HEADER,
    version_label,
)

VALUE_CHARACTERS_MAX = 512
RETRIES_MAX = 1000
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
PLAIN_TEXT = re.compile(r"[A-Za-z0-9_.~/:,-]+")
PLAIN = "!#$&'()*+,/:;=?@[]~"
READ = {
    AGENT_HEADER.encode(): "agent",
    CHANNEL_HEADER.encode(): "channel",
    RUN_ID_HEADER.encode(): "run_id",
    TAGS_HEADER.encode(): "tags",
    IDEMPOTENCY_KEY_HEADER.encode(): "idempotency_key",
    b"idempotency-key": "standard_idempotency_key",
    RETRY_COUNT_HEADER.encode(): "retry_count",
    b"x-stainless-retry-count": "sdk_retry_count",
    b"traceparent": "traceparent",
}
GROUP = GROUP_HEADER.encode()
TRAJECTORY = TRAJECTORY_HEADER.encode()
CALL_ID = CALL_ID_HEADER.encode()
POLICY_VERSION = POLICY_VERSION_HEADER.encode()
OVERHEAD_MS = OVERHEAD_MS_HEADER.encode()
CREDENTIALS = (b"authorization", b"x-api-key")
PROVIDERS = (b"anthropic-version", b"anthropic-beta")
"""The headers that a provider must get besides."""
RawHeaders = Iterable[tuple[bytes, bytes]]


class ClientHeaders(NamedTuple):
    """The headers of a client about its call."""

    agent: str | None = None
    channel: str | None = None
    run_id: str | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None
    retry_count: int | None = None
    """Retries before this one, by the client's own count; None: it does not count."""
    traceparent: str | None = None
    key_name: str | None = None
    """The name of the API key that came with them."""


def client_headers(raw: RawHeaders, key: ApiKey | None) -> ClientHeaders:
    """Parse the headers of a request. Raises InvalidRequest for an overlong value or one with control characters.

    key: by which the request was let in, whose secret is no longer among the headers.
    """
    values = {READ[name]: _text(name, value) for name, value in raw if name in READ and value}
    traceparent = values.get("traceparent", "")
    return ClientHeaders(
        agent=values.get("agent"),
        channel=values.get("channel"),
        run_id=values.get("run_id"),
        tags=_tags(values.get("tags", "")),
        idempotency_key=values.get("idempotency_key", values.get("standard_idempotency_key")),
        retry_count=_count(values.get("retry_count", values.get("sdk_retry_count"))),
        traceparent=traceparent if TRACEPARENT.fullmatch(traceparent) else None,
        key_name=key.label if key is not None else None,
    )


def passed_on(raw: RawHeaders, *, credentials: bool) -> dict[str, str]:
    """Returns the client's headers that a fixed upstream gets, and nobody else; its credentials only where these are
    meant for it."""
    names = (*CREDENTIALS, *PROVIDERS) if credentials else PROVIDERS
    return {name.decode(): value.decode("latin-1") for name, value in raw if name in names}


def credentials(raw: RawHeaders) -> tuple[str, ...]:
    """Returns the parts of the passed on credentials that must not be written: each whole, and the part after its scheme."""
    values = [value.decode("latin-1").strip() for name, value in raw if name in CREDENTIALS]
    return tuple([part for value in values if value for part in (value, value.rpartition(" ")[2])])


def reply_headers(identity: Identity, call_id: str, spans: tuple[VersionSpan, ...]) -> list[tuple[bytes, bytes]]:
    """Headers that tell a client where its call was stored and who answered it."""
    headers = [
        (GROUP, _header_safe(identity.group_id)),
        (TRAJECTORY, _header_safe(identity.trajectory_id)),
        (CALL_ID, _header_safe(call_id)),
    ]
    return [*headers, (POLICY_VERSION, _header_safe(version_range(spans)))] if spans else headers


def overhead(seconds: float) -> tuple[bytes, bytes]:
    """The header for the time that a call spent here and not in an engine."""
    return OVERHEAD_MS, b"%.2f" % (seconds * 1000)


def version_range(spans: tuple[VersionSpan, ...]) -> str:
    """`run/version`, `run/a..b` where it moved, joined by `,` where runs changed.

    >>> version_range((VersionSpan(run_id="r", version=3, start=0, end=4), VersionSpan(run_id="r", version=4, start=4, end=9)))
    'r/3..4'
    """
    if len(spans) == 1:  # nearly always
        return _range(spans[0].run_id, spans[0].version, spans[0].version)
    runs: dict[str, list[int]] = {}
    for span in spans:
        runs.setdefault(span.run_id, []).append(span.version)
    return ",".join(_range(run_id, min(versions), max(versions)) for run_id, versions in runs.items())


def _range(run_id: str, low: int, high: int) -> str:
    label = version_label(run_id, low)
    return label if low == high else f"{label}..{high}"


@lru_cache(maxsize=1024)
def _header_safe(text: str) -> bytes:
    if PLAIN_TEXT.fullmatch(text):
        return text.encode("ascii")
    return quote(text, safe=PLAIN).encode("ascii")


def _text(name: bytes, value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    if len(text) > VALUE_CHARACTERS_MAX or CONTROL.search(text):
        header = name.decode()
        raise InvalidRequest(
            f"header {header} must have at most {VALUE_CHARACTERS_MAX} printable characters", param=header
        )
    return text


def _tags(text: str) -> tuple[str, ...]:
    tags = tuple(tag for part in text.split(",") if (tag := part.strip())) if text else ()
    if len(tags) > TAGS_MAX:
        raise InvalidRequest(f"header {TAGS_HEADER} must hold at most {TAGS_MAX} tags", param=TAGS_HEADER)
    return tags


def _count(text: str | None) -> int | None:
    # A broken counter of a client must not fail its call: it only loses the memory of its retry.
    return min(int(text), RETRIES_MAX) if text and text.isascii() and text.isdigit() and len(text) < 10 else None

"""The ring of API keys, of which only hashes are known, and their rights. API keys, of which only hashes are known.

Input: the keys that `claw_r1.eventlog.known_keys` has of the log and of the settings.

Invariant: a request without a valid key reaches nothing but the health routes, and the key it came with is taken out of
its headers here, so nothing behind this line can store, log or forward it. No verdict is kept: each request is judged by what
the ring and the clock say when its head is there.
"""

import base64
import binascii
import contextlib
from collections.abc import Callable, Sequence

from claw_r1.eventlog.known_keys import KnownKeys
from claw_r1.gateway.errors import Forbidden, HeaderList, Unauthorized
from claw_r1.schemas.api_keys import MAY, OURS, Act, ApiKey, names_loopback
from claw_r1.schemas.envelopes import now_us

KEY_BYTES_MAX = 512
OPEN_PATHS = ("/livez", "/readyz", "/version")
"""Routes for load balancers, which need no key."""
NAMED_BY_BROWSERS = (b"host", b"origin")
NEEDED = "a valid API key is needed: Authorization: Bearer <key>, or x-api-key: <key>"
UNKNOWN = "this API key is not known here"


class KeyRing(KnownKeys):
    """The keys by their hashes. Where none is configured, everything is open to this machine, but to no web page from
    elsewhere, and to no key of ours that is not valid."""

    def __init__(self, configured: Sequence[ApiKey] = (), clock_us: Callable[[], int] = now_us) -> None:
        """configured: of the settings; with any, every request needs a key."""
        super().__init__(configured)
        self._clock_us = clock_us

    def checked(self, path: str, headers: HeaderList) -> tuple[ApiKey | None, HeaderList]:
        """The key that a request came with, and its headers without any of ours; a provider's key may stand beside it.

        Raises Unauthorized, Forbidden.
        """
        if path in OPEN_PATHS:
            return None, headers
        ours: list[ApiKey | None] = []
        rest: HeaderList = []
        for header in headers:
            secret = _key_in(*header)
            key = self.key(secret) if secret else None
            if key is None and not (secret and OURS.fullmatch(secret)):
                rest.append(header)
            else:
                ours.append(key)
        if ours:
            return self._valid(ours), rest
        if self._configured:
            raise Unauthorized(NEEDED)
        _refuse_foreign(headers)
        return None, rest

    def _valid(self, keys: Sequence[ApiKey | None]) -> ApiKey:
        """The first that is. None: what looks like a key of ours and is not known. Raises Unauthorized."""
        reasons = [key.why_invalid(self._clock_us()) if key else UNKNOWN for key in keys]
        for key, reason in zip(keys, reasons, strict=True):
            if key and reason is None:
                return key
        raise Unauthorized(reasons[0] or UNKNOWN)


def require(key: ApiKey | None, act: Act) -> None:
    """Raises Forbidden unless this key's role may do that; without keys, everybody may, but speak for people."""
    if key is None and act == "speak":
        raise Forbidden(
            f"to speak for people, use a key of the role {' or '.join(MAY[act])}: claw keys create NAME --role annotator"
        )
    if key is not None and key.role not in MAY[act]:
        raise Forbidden(f"this needs the role {' or '.join(MAY[act])}, and this key has the role {key.role}")


def _refuse_foreign(headers: HeaderList) -> None:
    """Refuse web pages from elsewhere: a browser on this machine sends their requests, with their origin or their host name.

    Raises Forbidden.
    """
    for name, value in headers:
        if name in NAMED_BY_BROWSERS and not names_loopback(value.decode("latin-1")):
            raise Forbidden(
                f"without API keys the {name.decode()} header must name this machine: set CLAW_GATEWAY_API_KEYS",
                code=f"foreign_{name.decode()}",
            )


def _key_in(name: bytes, value: bytes) -> bytes | None:
    """Returns the key that a header may hold: of HTTP's Basic, which clients of registries speak, the password."""
    if name == b"x-api-key":
        key = value
    elif name == b"authorization":
        key = _credential(*value.partition(b" ")[::2])
    else:
        return None
    return key if len(key) <= KEY_BYTES_MAX else None


def _credential(scheme: bytes, words: bytes) -> bytes:
    """Empty where there is none."""
    if scheme.lower() == b"bearer":
        return words.strip()
    if scheme.lower() == b"basic":
        with contextlib.suppress(binascii.Error):
            return base64.b64decode(words.strip(), validate=True).partition(b":")[2]
    return b""

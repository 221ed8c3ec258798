"""Who may request what: API keys, of which only hashes are known.

Invariant: a request without a valid key reaches nothing but the health routes, and the key it came with is taken out of
its headers here, so nothing behind this line can store, log or forward it.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256

from gateway.api_keys import ApiKey, names_loopback
from gateway.errors import Forbidden, HeaderList, Unauthorized

KEY_BYTES_MAX = 512
OPEN_PATHS = ("/livez", "/readyz", "/version")
"""Routes for load balancers, which need no key."""
NAMED_BY_BROWSERS = (b"host", b"origin")
OPERATOR_PATHS = ("/metrics",)


class KeyRing:
    """The valid keys. Without any, everything is open to this machine, but to no web page from elsewhere."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = tuple(keys)

    def checked(self, path: str, headers: HeaderList) -> tuple[ApiKey | None, HeaderList]:
        """The key that let the request in, if one is needed, and the headers without it. Raises Unauthorized, Forbidden."""
        if path in OPEN_PATHS:
            return None, headers
        if not self._keys:
            _refuse_foreign(headers)
            return None, headers
        key, rest = self._recognise(headers)
        if key is None:
            raise Unauthorized("a valid API key is needed: Authorization: Bearer <key>, or x-api-key: <key>")
        if path in OPERATOR_PATHS and key.role != "operator":
            raise Forbidden("this needs an operator's key")
        return key, rest

    def _recognise(self, headers: HeaderList) -> tuple[ApiKey | None, HeaderList]:
        """The request's key, and the headers without any of ours; a provider's key may stand beside it."""
        keys = [self._key(secret) if (secret := _key_in(name, value)) else None for name, value in headers]
        rest = [header for header, key in zip(headers, keys, strict=True) if key is None]
        return next((key for key in keys if key is not None), None), rest

    def _key(self, secret: bytes) -> ApiKey | None:
        digest = sha256(secret).digest()
        same: ApiKey | None = None
        for key in self._keys:  # all of them, always: the time taken says nothing about which one came close
            if hmac.compare_digest(digest, key.digest):
                same = key
        return same


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
    if name == b"x-api-key":
        key = value
    elif name == b"authorization" and value[:7].lower() == b"bearer ":
        key = value[7:].strip()
    else:
        return None
    return key if len(key) <= KEY_BYTES_MAX else None

"""Who may request what: API keys, of which only hashes are known.

Invariant: a request without a valid key reaches nothing but the health routes, and the key it came with is taken out of
its headers here, so nothing behind this line can store, log or forward it.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256

from gateway.api_keys import ApiKey, Role, names_loopback
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

    def checked(self, path: str, headers: HeaderList) -> HeaderList:
        """The headers without the key that let the request in. Raises Unauthorized, Forbidden."""
        if path in OPEN_PATHS:
            return headers
        if not self._keys:
            _refuse_foreign(headers)
            return headers
        role, rest = self._recognise(headers)
        if role is None:
            raise Unauthorized("a valid API key is needed: Authorization: Bearer <key>, or x-api-key: <key>")
        if path in OPERATOR_PATHS and role != "operator":
            raise Forbidden("this needs an operator's key")
        return rest

    def _recognise(self, headers: HeaderList) -> tuple[Role | None, HeaderList]:
        """The role of the request's key, and the headers without any of ours; a provider's key may stand beside it."""
        roles = [self._role(key) if (key := _key_in(name, value)) else None for name, value in headers]
        rest = [header for header, role in zip(headers, roles, strict=True) if role is None]
        return next((role for role in roles if role is not None), None), rest

    def _role(self, secret: bytes) -> Role | None:
        digest = sha256(secret).digest()
        role: Role | None = None
        for key in self._keys:  # all of them, always: the time taken says nothing about which one came close
            if hmac.compare_digest(digest, key.digest):
                role = key.role
        return role


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

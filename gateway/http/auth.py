"""Who may ask for what: API keys, known by their hash only.

Invariant: a request without a valid key reaches nothing but the health routes, and the key it came with is taken out of
its headers here, so nothing behind this line can store, log or forward it.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api_keys import ApiKey, Role, names_loopback
from gateway.errors import Forbidden, HeaderList, Unauthorized, as_http
from gateway.http.asgi import send_error
from gateway.metrics import Metrics

KEY_BYTES_MAX = 512
OPEN_PATHS = ("/livez", "/readyz", "/version")
"""What a load balancer asks."""
SAID_BY_BROWSERS = (b"host", b"origin")
OPERATOR_PATHS = ("/metrics",)


class Guard:
    """Lets requests with a valid key through to `inner` (ASGI)."""

    def __init__(self, inner: ASGIApp, keys: "KeyRing", metrics: Metrics) -> None:
        self._inner, self.keys, self._metrics = inner, keys, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI app."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                scope["headers"] = self.keys.checked(scope["path"], scope["headers"])
            except (Unauthorized, Forbidden) as refused:
                self._metrics.requests.labels("refused", str(refused.status)).inc()
                await send_error(send, as_http(refused))
                return
        await self._inner(scope, receive, send)


class KeyRing:
    """The keys that open. Without any, everything is open to this machine, and to no web page from elsewhere."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = tuple(keys)

    def checked(self, path: str, headers: HeaderList) -> HeaderList:
        """The headers without the key that let the request in. Raises Unauthorized, Forbidden."""
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
        roles = [self._role(given) if (given := _given(name, value)) else None for name, value in headers]
        rest = [header for header, role in zip(headers, roles, strict=True) if role is None]
        return next((role for role in roles if role is not None), None), rest

    def _role(self, given: bytes) -> Role | None:
        digest = sha256(given).digest()
        found: Role | None = None
        for key in self._keys:  # all of them, always: the time taken says nothing about which one came close
            if hmac.compare_digest(digest, key.digest):
                found = key.role
        return found


def _refuse_foreign(headers: HeaderList) -> None:
    """A browser on this machine sends what any web page asks; it says whose page, or (rebinding) for which name.

    Raises Forbidden.
    """
    for name, value in headers:
        if name in SAID_BY_BROWSERS and not names_loopback(value.decode("latin-1")):
            raise Forbidden(
                f"without API keys the {name.decode()} header must name this machine: set CLAW_GATEWAY_API_KEYS",
                code=f"foreign_{name.decode()}",
            )


def _given(name: bytes, value: bytes) -> bytes | None:
    if name == b"x-api-key":
        key = value
    elif name == b"authorization" and value[:7].lower() == b"bearer ":
        key = value[7:].strip()
    else:
        return None
    return key if len(key) <= KEY_BYTES_MAX else None

"""Control routes of vLLM answer 404 unless the per-start secret comes along.

An exact allow-list, because control routes hide under open-looking prefixes (/v1/load_lora_adapter,
/inference/v1/abort_requests) and a new version of vLLM may add more. Fails closed: without a secret, nobody controls.
"""

import hmac
import os
from typing import TYPE_CHECKING

from claw_r1.schemas.http import CONTROL_HEADER

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

SECRET_VARIABLE = "CLAW_ROLLOUT_CONTROL_SECRET"  # noqa: S105  # a name, not a secret
CONTROLS = "claw.controls"
"""The controls in a scope: whether the supervisor asks, who has the secret."""
OPEN_PATHS = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/models",
        "/tokenize",
        "/detokenize",
        "/health",
        "/ping",
        "/version",
        "/load",
        "/metrics",
        "/metrics/",
        "/claw/info",
        "/claw/drain",
        "/claw/probe",
    }
)


class ControlGuard:
    """Outermost middleware (`--middleware`); reads the secret once, at start."""

    def __init__(self, app: "ASGIApp", secret: str | None = None) -> None:
        self.app = app
        self._secret = (os.environ.get(SECRET_VARIABLE, "") if secret is None else secret).encode()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """ASGI."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
        elif (controls := self._controls(scope)) or scope["path"] in OPEN_PATHS:
            scope[CONTROLS] = controls
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 404, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"detail":"Not Found"}'})

    def _controls(self, scope: "Scope") -> bool:
        secret = next((value for name, value in scope["headers"] if name == CONTROL_HEADER.encode()), b"")
        return bool(self._secret) and hmac.compare_digest(secret, self._secret)

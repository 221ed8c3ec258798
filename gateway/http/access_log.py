"""One line per request: what was asked, how it went, how long it took. No body, no query, no header of the client."""

import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.http import CALL_ID_HEADER

CALL_ID = CALL_ID_HEADER.encode()
PATH_CHARACTERS_MAX = 256
REFUSED = "claw.refused"
"""In the scope of a request whose connection refused the rest of it, and has said so."""
log = structlog.get_logger()


class AccessLog:
    """Logs each request that `inner` (ASGI) answers, when its last byte is handed over or its client has gone."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI app."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        started_s = time.perf_counter()
        status, call_id, sent_bytes = 0, None, 0

        async def counted(message: Message) -> None:
            nonlocal status, call_id, sent_bytes
            if message["type"] == "http.response.start":
                status = message["status"]
                call_id = next((value.decode() for name, value in message["headers"] if name == CALL_ID), None)
            else:
                sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._inner(scope, receive, counted)
        finally:
            if REFUSED not in scope:
                log_request(scope["method"], scope["path"], status, started_s, sent_bytes, call_id)


def log_request(
    method: str, path: str, status: int, started_s: float, reply_bytes: int, call_id: str | None = None
) -> None:
    """The line of a request that began at `started_s` (perf_counter). status 0: it got no reply."""
    log.info(
        "request",
        method=method or None,
        path=path[:PATH_CHARACTERS_MAX],
        status=status or None,
        ms=round(1000 * (time.perf_counter() - started_s), 2),
        reply_bytes=reply_bytes,
        call_id=call_id,
    )

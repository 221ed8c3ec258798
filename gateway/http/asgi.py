"""Hands requests to an ASGI app, FastAPI's, when their bodies are whole and the door has let them in."""

from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

from claw_r1.gateway.errors import HeaderList
from claw_r1.gateway.http.exchange import Exchange

IDENTITY = "claw.identity"
"""In the scope: the trajectory that the path names."""
KEY = "claw.key"
"""In the scope: the API key by which the request was let in."""


class AsgiHandler:
    """Answers by an app that writes no streams. What the app raises is raised here,
    whatever it has sent by then."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, exchange: Exchange) -> None:
        start: Message = {}
        body = bytearray()

        async def receive() -> Message:
            return {"type": "http.request", "body": exchange.body, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            body.extend(message.get("body", b""))

        await self._app(asgi_scope(exchange), receive, send)
        await exchange.reply(start["status"], _without(b"content-length", start["headers"]), bytes(body))


def asgi_scope(exchange: Exchange) -> Scope:
    """Returns the scope of a request, with the key and the trajectory that the door found."""
    head, route = exchange.head, exchange.route
    path = head.path if route is None else b"/v1/" + route.endpoint.encode()
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1" if head.knows_chunks else "1.0",
        "method": head.method.decode("ascii"),
        "scheme": "http",
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "root_path": "",
        "query_string": head.query,
        # Every body here is JSON, whatever a client's HTTP library calls it by default.
        "headers": [*_without(b"content-type", exchange.headers), (b"content-type", b"application/json")],
        IDENTITY: route and route.identity,
        KEY: exchange.key,
    }


def _without(name: bytes, headers: Any) -> HeaderList:  # any iterable of pairs, as ASGI allows
    return [header for header in headers if header[0] != name]

"""The frequent control requests, answered at the door: groups, lifecycle and rewards, without FastAPI's machinery.

Invariant: clients see no difference. The handler is that of FastAPI's route, its body is checked by the same type, and what is
wrong with it is said in the same words. All other requests go on to FastAPI, which keeps these routes too, for OpenAPI.
"""

from collections.abc import Awaitable, Callable, Mapping
from inspect import Parameter, signature
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter, ValidationError

from claw_r1.gateway.control.bodies import not_valid, strict_json
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.http.asgi import asgi_scope
from claw_r1.gateway.http.exchange import Exchange

RouteHandler = Callable[..., Awaitable[JSONResponse]]
"""Takes the request and its `body`, a model of pydantic's."""


class DirectRoutes:
    """Answers the POST requests of some paths, as the app sees them (`asgi_scope`);
    `otherwise` answers all others."""

    def __init__(
        self, handlers: Mapping[bytes, RouteHandler], otherwise: Callable[[Exchange], Awaitable[None]]
    ) -> None:
        self._routes = {path: (handler, _Body(handler)) for path, handler in handlers.items()}
        self.otherwise = otherwise

    async def __call__(self, exchange: Exchange) -> None:
        scope = asgi_scope(exchange)
        if exchange.head.method != b"POST" or scope["raw_path"] not in self._routes:
            await self.otherwise(exchange)
            return
        handler, body = self._routes[scope["raw_path"]]
        answer = await handler(Request(scope), body.read(exchange.body))
        await exchange.reply(answer.status_code, [(b"content-type", b"application/json")], bytes(answer.body))


class _Body:
    """The body that a handler takes."""

    def __init__(self, handler: RouteHandler) -> None:
        parameter = signature(handler).parameters["body"]
        self._type: TypeAdapter[Any] = TypeAdapter(parameter.annotation)
        self._is_needed = parameter.default is Parameter.empty

    def read(self, raw: bytes) -> object:
        """Returns the body, or None where there is none and none is needed. Raises InvalidRequest."""
        value = strict_json(raw) if raw else None
        if value is None:
            if self._is_needed:
                raise InvalidRequest("Field required")
            return None
        try:
            return self._type.validate_python(value, from_attributes=True)  # as FastAPI asks it
        except ValidationError as broken:
            raise not_valid(broken.errors()[0]) from broken

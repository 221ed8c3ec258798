"""The composition of the gateway: collaborators in, one ASGI app out.

The front looks at the path. Model calls go to plain ASGI (`calls.py`), everything else to FastAPI (`control.py`).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
import structlog
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.access_log import AccessLog
from gateway.admission import AdmissionView
from gateway.asgi import read_body, send_error
from gateway.auth import Guard
from gateway.calls import ModelCalls
from gateway.capture import Capture
from gateway.control import IDENTITY, Control, control_app
from gateway.dispatch import Dispatcher
from gateway.errors import (
    CLIENT_CLOSED,
    ClientGone,
    GatewayError,
    HeaderList,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    as_http,
)
from gateway.health import Health, NotReady, watch_loop_lag
from gateway.identity import CHAT, MODELS, Route, resolve
from gateway.keys import parse_key
from gateway.metrics import Metrics
from gateway.models import Models
from gateway.settings import GatewaySettings
from gateway.store import Log
from gateway.upstream import HttpUpstream
from gateway.workers import WorkerTable

log = structlog.get_logger()


def _always() -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collaborators:
    """What the gateway works with. Tests give a log of their own and fill the tables by hand."""

    settings: GatewaySettings
    log: Log
    workers: WorkerTable
    admission: AdmissionView = field(default_factory=AdmissionView)
    metrics: Metrics = field(default_factory=Metrics)
    not_ready: NotReady = _always


def create_app(given: Collaborators) -> ASGIApp:
    """The gateway as an ASGI app; its lifespan opens and closes the connections to engines."""
    settings, metrics = given.settings, given.metrics
    upstream = HttpUpstream(settings.connect_timeout_s, settings.upstream_timeout_s, settings.reply_bytes_max)
    dispatcher = Dispatcher(settings, given.workers, upstream, metrics)
    calls = ModelCalls(settings, dispatcher, Capture(given.log, metrics), metrics)
    metrics.observe(lambda: calls.in_flight, lambda: len(given.workers.live()))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        lag = asyncio.ensure_future(watch_loop_lag(metrics.loop_lag_seconds.set))
        async with upstream:
            yield
        lag.cancel()

    control = Control(settings, given.log, given.admission, metrics)
    health = Health(given.workers, given.not_ready)
    app = control_app(control, Models(given.workers, upstream), health, metrics, lifespan)
    return _guarded(Front(calls, app, metrics, settings.control_bytes_max), settings, metrics)


def _guarded(front: ASGIApp, settings: GatewaySettings, metrics: Metrics) -> ASGIApp:
    """What stands before the front: who may ask, and what is written down of it."""
    if settings.api_keys:
        front = Guard(front, [parse_key(entry) for entry in settings.api_keys], metrics)
    return AccessLog(front) if settings.access_log else front


class Front:
    """Sends a request where its path says, and turns what goes wrong on the way into a reply."""

    def __init__(self, calls: ModelCalls, control: ASGIApp, metrics: Metrics, control_bytes_max: int) -> None:
        self._calls, self._control, self._metrics = calls, control, metrics
        self._control_bytes_max = control_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI app."""
        if scope["type"] != "http":
            await self._control(scope, receive, send)
            return
        label = "control"
        try:
            route = resolve(scope.get("raw_path") or scope["path"].encode())
            if route is not None and route.endpoint == CHAT:
                label = "chat"
                status = await self._call(scope, receive, send, route)
            else:
                status = await self._controlled(scope, receive, send, route)
        except GatewayError as error:
            status = error.status
            await send_error(send, as_http(error))
        except ClientGone:
            status = CLIENT_CLOSED
        self._metrics.requests.labels(label, str(status)).inc()

    async def _call(self, scope: Scope, receive: Receive, send: Send, route: Route) -> int:
        if scope["method"] != "POST":
            raise MethodNotAllowed("model calls are POST requests")
        try:
            return await self._calls(scope, receive, send, route.identity)
        except (GatewayError, ClientGone):
            raise
        except Exception as bug:  # the client gets an answer, the operator the trace, the next request is served
            log.exception("bug_in_model_call")
            raise GatewayError("internal error") from bug

    async def _controlled(self, scope: Scope, receive: Receive, send: Send, route: Route | None) -> int:
        if route is not None and route.identity is None and route.endpoint != MODELS:
            raise NotFound("the path must name a trajectory: /{trajectory_id}/{group_id}/v1/…")
        body = await read_body(scope, receive, self._control_bytes_max)
        _require_json(body)
        inner = {**scope, "headers": _as_json(scope["headers"])}
        if route is not None:
            path = f"/v1/{route.endpoint}"
            inner |= {"path": path, "raw_path": path.encode(), IDENTITY: route.identity}
        statuses: list[int] = []

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        await self._control(inner, _again(body, receive), watched)
        return statuses[0] if statuses else 500


def _require_json(body: bytes) -> None:
    """Refuse what strict JSON refuses (NaN, lone surrogates, nesting without end) before anything else reads it."""
    if body:
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError as broken:
            raise InvalidRequest(f"the body is not valid JSON: {broken}") from broken


def _as_json(headers: HeaderList) -> HeaderList:
    # Every body here is JSON, whatever a client's HTTP library calls it by default.
    return [*(header for header in headers if header[0] != b"content-type"), (b"content-type", b"application/json")]


def _again(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return pending.pop() if pending else await receive()

    return replayed

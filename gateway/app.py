"""The composition of the gateway: collaborators in, what serves connections out.

Model calls come straight from their connection (`client.py`) to `calls.py`, everything else by ASGI to FastAPI (`control.py`).
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

import orjson
import structlog
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api_keys import parse_key
from gateway.capture.calls import ModelCalls
from gateway.capture.durable_log import EventSink
from gateway.capture.events import Capture
from gateway.control.admission import AdmissionView
from gateway.control.crowding import Crowds
from gateway.control.health import Health, NotReady, watch_loop_lag
from gateway.control.models import Models
from gateway.control.routes import IDENTITY, Control, control_app
from gateway.errors import (
    CLIENT_CLOSED,
    ClientGone,
    Forbidden,
    GatewayError,
    HeaderList,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    Unauthorized,
    as_http,
)
from gateway.headers import overhead
from gateway.http.access_log import CALL_ID, REFUSED, AccessLog, log_request
from gateway.http.asgi import read_body, send_error
from gateway.http.auth import Guard, KeyRing
from gateway.http.exchange import Exchange, no_room, too_large
from gateway.http.memory_budget import Budget
from gateway.identity import CHAT, MODELS, SERVED, Route, not_served, resolve
from gateway.metrics import Metrics
from gateway.settings import GatewaySettings
from gateway.upstream.dispatch import Dispatcher
from gateway.upstream.engines import WorkerTable
from gateway.upstream.pool import HttpUpstream

log = structlog.get_logger()


def _always() -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDependencies:
    """What the gateway works with. Tests give a log of their own and fill the tables by hand."""

    settings: GatewaySettings
    log: EventSink
    workers: WorkerTable
    admission: AdmissionView = field(default_factory=AdmissionView)
    metrics: Metrics = field(default_factory=Metrics)
    not_ready: NotReady = _always


@dataclass(frozen=True, slots=True)
class Gateway:
    """What a server needs of it."""

    app: ASGIApp
    """Its lifespan opens and closes the connections to engines."""
    calls: "CallHandler"


def create_gateway(dependencies: GatewayDependencies) -> Gateway:
    """The gateway, composed."""
    settings, metrics = dependencies.settings, dependencies.metrics
    upstream = HttpUpstream(settings.connect_timeout_s, settings.upstream_timeout_s, settings.reply_bytes_max)
    dispatcher = Dispatcher(settings, dependencies.workers, upstream, metrics)
    crowds = Crowds(metrics)
    dependencies.admission.on_group = crowds.take
    calls = ModelCalls(settings, dispatcher, Capture(dependencies.log, metrics), metrics, crowds)
    budget = Budget(settings.held_bytes_max)
    metrics.observe(lambda: calls.in_flight, lambda: len(dependencies.workers.live()), lambda: budget.held_bytes)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        lag = asyncio.ensure_future(watch_loop_lag(metrics.loop_lag_seconds.set))
        async with upstream:
            yield
        lag.cancel()

    control = Control(settings, dependencies.log, dependencies.admission, metrics, crowds)
    health = Health(dependencies.workers, dependencies.not_ready)
    app = control_app(control, Models(dependencies.workers, upstream), health, metrics, lifespan)
    keys = KeyRing([parse_key(entry) for entry in settings.api_keys])
    guarded = Guard(Front(app, metrics, settings.control_bytes_max), keys, metrics)
    return Gateway(
        AccessLog(guarded) if settings.access_log else guarded, CallHandler(calls, keys, budget, metrics, settings)
    )


class CallHandler:
    """Model calls as they come from a connection (a `client.Handler`): who may ask, and what goes wrong as a reply."""

    def __init__(
        self, calls: ModelCalls, keys: KeyRing, budget: Budget, metrics: Metrics, settings: GatewaySettings
    ) -> None:
        self._calls, self._keys, self._metrics, self._logged = calls, keys, metrics, settings.access_log
        self.body_bytes_max, self.budget = settings.body_bytes_max, budget

    def admit(self, client: Exchange) -> None:
        """Look at the headers, before the body is read. Raises GatewayError."""
        client.headers = self._keys.checked("", client.headers)
        declared = next((value for name, value in client.headers if name == b"content-length"), b"0")
        if int(declared) > self.body_bytes_max:
            raise too_large(self.body_bytes_max)
        if int(declared) - client.held_bytes > self.budget.left_bytes:
            raise no_room()

    async def answer(self, client: Exchange) -> None:
        """Answer one call, and let go of what it holds once its client has it."""
        try:
            await self._answer(client)
            await client.taken()
        finally:
            client.release()

    async def _answer(self, client: Exchange) -> None:
        started_s = time.perf_counter()
        try:
            await self._answered(client)
        except ClientGone:
            pass
        except GatewayError as error:
            headers: HeaderList = [] if client.call_id is None else [(CALL_ID, client.call_id.encode())]
            client.refuse(error, [*headers, overhead(time.perf_counter() - started_s - client.upstream_s)])
        finally:
            if client.disconnected:
                client.status = CLIENT_CLOSED
            elif not client.response_complete:
                client.abort()
            self._metrics.request_seconds.observe(time.perf_counter() - started_s)
            self._note(client, "chat", started_s)

    def refuse(self, client: Exchange, error: GatewayError) -> None:
        """Answer a call whose turn it is, and that is not begun."""
        client.refuse(error, [overhead(time.perf_counter() - client.turn_s)])
        self._note(client, "refused" if isinstance(error, (Unauthorized, Forbidden)) else "chat", client.turn_s)

    def refused(self, method: str, path: bytes, status: int, reply_bytes: int) -> None:
        """Count, and log, what was refused before anything else could."""
        self._metrics.request("refused", status)
        if self._logged:
            log_request(method, unquote(path.decode("latin-1")), status, time.perf_counter(), reply_bytes)

    async def _answered(self, client: Exchange) -> None:
        try:
            route = resolve(client.path)
            if route is None:
                raise NotFound(f"no such route: {SERVED}")
            await self._calls(client, route.identity)
        except (GatewayError, ClientGone):
            raise
        except Exception as bug:  # the client gets an answer, the operator the trace, the next request is served
            log.exception("bug_in_model_call")
            raise GatewayError("internal error") from bug

    def _note(self, client: Exchange, label: str, started_s: float) -> None:
        self._metrics.request(label, client.status)
        if self._logged:
            path = unquote(client.path.decode("ascii"))
            log_request("POST", path, client.status, started_s, client.sent_bytes, client.call_id)


class Front:
    """Sends every other request where its path says, and turns what goes wrong on the way into a reply."""

    def __init__(self, control: ASGIApp, metrics: Metrics, control_bytes_max: int) -> None:
        self._control, self._metrics = control, metrics
        self._control_bytes_max = control_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI app."""
        if scope["type"] != "http":
            await self._control(scope, receive, send)
            return
        try:
            raw_path = scope.get("raw_path") or scope["path"].encode()
            route = resolve(raw_path)
            if route is None and (other := not_served(raw_path)) is not None:
                raise other
            if route is not None and route.endpoint == CHAT:
                raise MethodNotAllowed("model calls are POST requests")
            status = await self._controlled(scope, receive, send, route)
        except GatewayError as error:
            status = error.status
            await send_error(send, as_http(error))
        except ClientGone:
            if REFUSED in scope:
                return  # counted where it was refused
            status = CLIENT_CLOSED
        self._metrics.request("control", status)

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

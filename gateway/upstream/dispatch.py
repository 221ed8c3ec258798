"""One call to some engine: choose, send, and try again as long as that can help.

Invariant: a call is tried again only while the client has seen nothing of it. An engine that is away, paused or
restarting is waited for, up to `worker_wait_s` from the first failure; a call that an engine had when it broke is sent
again at most `resends_max` times.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from gateway.call_protocol import CallProtocol, CallRequest
from gateway.errors import GatewayError, NotFound, NoWorker, UpstreamBroken, UpstreamUnreachable
from gateway.metrics import Metrics
from gateway.settings import GatewaySettings
from gateway.upstream.connection import Reply, Sink
from gateway.upstream.engines import Engine, WorkerTable
from gateway.upstream.pool import HttpUpstream, UpstreamReply
from gateway.upstream.routing import choose
from schemas.envelopes import now_us

AWAY = (502, 503)
POLL_S = 1.0
"""How often a waiting call looks by itself: reports wake it, only time brings no report."""
T = TypeVar("T")


class EngineAway(UpstreamUnreachable):
    """The engine answers that it cannot work now (paused, restarting, overloaded)."""

    status = 503
    code = "engine_away"


class Dispatch(NamedTuple):
    """What has to be known of a call to send it."""

    protocol: CallProtocol
    request: CallRequest
    trajectory: str
    run_id: str | None
    call_id: str
    traceparent: str | None = None
    authorization: bytes | None = None
    """For fixed upstreams only."""


@dataclass(slots=True)
class CallProgress:
    """Where a call is right now; read when it fails or is cancelled."""

    engine: Engine | None = None
    dispatched_us: int | None = None
    upstream_s: float = 0.0
    """In engines, in all tries that are over."""


class EngineAnswer(NamedTuple):
    """A reply that goes back to the client: 200, or a refusal that no retry can change."""

    engine: Engine
    request: CallRequest
    """As this engine got it."""
    reply: UpstreamReply
    dispatched_us: int
    upstream_s: float
    """In engines, in all tries."""


class OpenStream:
    """A stream under way. Counts as outstanding until it is closed, which ends the generation unless it is over."""

    def __init__(self, engine: Engine, request: CallRequest, dispatched_us: int, outstanding: Counter[str]) -> None:
        self.engine, self.request, self.dispatched_us = engine, request, dispatched_us
        self.upstream_s = 0.0
        """In engines, to the first bytes of this one."""
        self._exchange: Reply | None = None
        self._first = b""
        self._outstanding, self._closed = outstanding, False
        outstanding[engine.url] += 1

    @property
    def exchange(self) -> Reply:
        assert self._exchange is not None, "begun before"
        return self._exchange

    async def begin(self, exchange: Reply) -> None:
        """Wait for the first bytes: until then, a broken engine can be replaced by another one."""
        self._exchange = exchange
        self._first = await exchange.first()
        if not self._first:
            raise UpstreamBroken("the engine's stream is empty")

    async def relay(self, sink: Sink) -> None:
        """The body, as `Reply.relay` gives it."""
        if sink(self._first):
            await self.exchange.relay(sink)

    @property
    def content_type(self) -> str:
        return self.exchange.headers.get("content-type", "")

    def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            self._outstanding[self.engine.url] -= 1
            if self._exchange is not None:
                self._exchange.abort()


class Dispatcher:
    """Sends calls, and knows how many each engine has in flight."""

    def __init__(
        self, settings: GatewaySettings, workers: WorkerTable, upstream: HttpUpstream, metrics: Metrics
    ) -> None:
        self._settings, self._workers, self._upstream, self._metrics = settings, workers, upstream, metrics
        self._outstanding: Counter[str] = Counter()
        self._news = News(workers)

    async def send(self, call: Dispatch, progress: CallProgress) -> EngineAnswer:
        """The answer of an engine. Raises NoWorker, NotFound (model) or a subclass of UpstreamFailed."""
        return await self._persist(call, progress, self._once)

    async def open(self, call: Dispatch, progress: CallProgress) -> EngineAnswer | OpenStream:
        """A stream whose first bytes are here, for the caller to close; an answer where the engine did not stream.

        Raises as `send`.
        """
        return await self._persist(call, progress, self._opened)

    async def _persist(
        self, call: Dispatch, progress: CallProgress, attempt: Callable[[Engine, Dispatch, CallProgress], Awaitable[T]]
    ) -> T:
        patience = RetryBudget(self._settings)
        avoid: set[str] = set()
        while True:
            engine = progress.engine = await self._engine(call, patience, avoid)
            if engine.url in avoid:  # all have failed: each gets another turn
                avoid.clear()
            try:
                return await attempt(engine, call, progress)
            except (UpstreamUnreachable, UpstreamBroken) as failure:
                self._metrics.upstream_retries.labels(failure.reason).inc()
                avoid.add(engine.url)
                await patience.after(failure)

    async def _once(self, engine: Engine, call: Dispatch, progress: CallProgress) -> EngineAnswer:
        progress.dispatched_us = dispatched_us = now_us()
        started, request = time.perf_counter(), self._request(engine, call)
        self._outstanding[engine.url] += 1
        try:
            reply = await self._upstream.post(
                call_url(engine, call.protocol), request.forwarded, _headers(engine, call)
            )
        finally:
            self._outstanding[engine.url] -= 1
            progress.upstream_s += time.perf_counter() - started
        return EngineAnswer(engine, request, _usable(reply), dispatched_us, progress.upstream_s)

    async def _opened(self, engine: Engine, call: Dispatch, progress: CallProgress) -> EngineAnswer | OpenStream:
        progress.dispatched_us = dispatched_us = now_us()
        started, request, reply = time.perf_counter(), self._request(engine, call), None
        opened = OpenStream(engine, request, dispatched_us, self._outstanding)
        try:
            exchange = await self._upstream.send(
                "POST", call_url(engine, call.protocol), request.forwarded, _headers(engine, call)
            )
            if _streams(exchange, call.protocol):
                await opened.begin(exchange)
                exchange.pace(self._settings.stream_idle_timeout_s, self._settings.stream_timeout_s)
            else:
                async with exchange:
                    reply = await whole(exchange)
        except BaseException:  # a cancelled call, too, must not leave an engine generating
            opened.close()
            raise
        finally:
            progress.upstream_s += time.perf_counter() - started
        if reply is None:
            opened.upstream_s = progress.upstream_s
            return opened
        opened.close()
        return EngineAnswer(engine, request, _usable(reply), dispatched_us, progress.upstream_s)

    def _request(self, engine: Engine, call: Dispatch) -> CallRequest:
        """As this engine gets it. Some providers refuse the fields that capture adds."""
        adds = not engine.fixed or self._settings.upstream_token_ids
        return call.request if adds else call.request.unchanged()

    async def _engine(self, call: Dispatch, patience: "RetryBudget", avoid: set[str]) -> Engine:
        engine = self._chosen(call, avoid)
        while engine is None:
            news = self._news.next()  # before looking again: what comes after that look sets it
            engine = self._chosen(call, avoid)
            if engine is None:
                left_s = patience.left_s(NoWorker("no rollout worker is ready", retry_after_s=1.0))
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), min(POLL_S, left_s))
        return engine

    def _chosen(self, call: Dispatch, avoid: set[str]) -> Engine | None:
        live, model = self._workers.live(), call.request.model
        engine = choose(
            live, self._outstanding, model=model, trajectory=call.trajectory, run_id=call.run_id, avoid=avoid
        )
        if engine is None and live and not self._workers.knows(model):
            raise NotFound(f"no server has the model {model!r}", param="model", code="model_not_found")
        return engine


class News:
    """Tells waiting calls, all at once, that a worker reported. Reports come on another thread."""

    def __init__(self, workers: WorkerTable) -> None:
        self._workers = workers
        self._event: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def next(self) -> asyncio.Event:
        """Set by the next report."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._workers.on_report = self._told
        self._event = self._event or asyncio.Event()
        return self._event

    def _told(self) -> None:
        if self._event is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            event.set()


class RetryBudget:
    """How much longer one call may wait and be sent again."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._wait_s, self._wait_max_s = settings.retry_wait_s, settings.retry_wait_max_s
        self._resends_left = settings.resends_max
        self._budget_s = settings.worker_wait_s
        self._deadline_s: float | None = None

    async def after(self, failure: GatewayError) -> None:
        """Wait before the next try, longer each time. Raises the failure when there shall be none."""
        if isinstance(failure, UpstreamBroken):
            if not self._resends_left:
                raise failure
            self._resends_left -= 1
        await self.wait(self._wait_s, failure)
        self._wait_s = min(2 * self._wait_s, self._wait_max_s)

    async def wait(self, wait_s: float, failure: GatewayError) -> None:
        """Sleep, or raise the failure when the budget is spent."""
        if wait_s > self.left_s(failure):
            raise failure
        await asyncio.sleep(wait_s)

    def left_s(self, failure: GatewayError) -> float:
        """What is left of the budget, which begins with the first question. Raises the failure when that is nothing."""
        now = time.monotonic()
        if self._deadline_s is None:
            self._deadline_s = now + self._budget_s
        if now >= self._deadline_s:
            raise failure
        return self._deadline_s - now


async def whole(exchange: Reply) -> UpstreamReply:
    """A reply, read to its end."""
    return UpstreamReply(exchange.status, await exchange.read(), exchange.headers)


def _streams(exchange: Reply, protocol: CallProtocol) -> bool:
    return exchange.status == 200 and exchange.headers.get("content-type", "").startswith(protocol.stream_type)


def _usable(reply: UpstreamReply) -> UpstreamReply:
    """A 200, or a refusal that no retry can change. Raises EngineAway, UpstreamBroken."""
    if reply.status in AWAY:
        raise EngineAway(f"the engine answers {reply.status}", retry_after_s=1.0)
    if reply.status >= 500 or 200 < reply.status < 400:
        raise UpstreamBroken(f"the engine answers {reply.status}")
    return reply


def call_url(engine: Engine, protocol: CallProtocol) -> str:
    """Address of the protocol's route on an engine, whose URL may or may not end in /v1."""
    return engine.url.removesuffix("/v1") + protocol.path


def _headers(engine: Engine, call: Dispatch) -> dict[str, str]:
    # The engine names its reply after x-request-id, so an engine's log can be joined with the events.
    headers = {"content-type": "application/json", "x-request-id": call.call_id}
    if call.traceparent:
        headers["traceparent"] = call.traceparent
    if engine.fixed and call.authorization:
        headers["authorization"] = call.authorization.decode("latin-1")
    return headers

"""One call to some engine: choose, send, and try again as long as that can help.

Invariant: a call is tried again only while the client has seen nothing of it. An engine that is away, paused or
restarting is waited for, up to `worker_wait_s`; a call that an engine had when it broke is sent again at most
`resends_max` times, however long it had it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

from claw_r1.gateway.call_protocol import CallRequest
from claw_r1.gateway.errors import NotFound, NoWorker, UpstreamBroken, UpstreamUnreachable
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.gateway.upstream.engines import Engine, EngineTable
from claw_r1.gateway.upstream.http_upstream import HttpUpstream, UpstreamReply, whole
from claw_r1.gateway.upstream.incoming_reply import IncomingReply, Sink
from claw_r1.gateway.upstream.retry_budget import RetryBudget
from claw_r1.gateway.upstream.routing import choose
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.http import TOKENS_HEADER

AWAY = (502, 503)
POLL_S = 1.0
"""How often a waiting call looks by itself: reports wake it, only time brings no report."""


class EngineAway(UpstreamUnreachable):
    """The engine answers that it cannot work now (paused, restarting, overloaded)."""

    status = 503
    code = "engine_away"


class EngineRoute(Protocol):
    """The route by which a protocol's requests are sent."""

    path: str
    stream_type: str


class Dispatch(NamedTuple):
    """The data that sending a call needs."""

    protocol: EngineRoute
    request: CallRequest
    trajectory: str
    run_id: str | None
    call_id: str
    trains: bool = True
    """The call is on the channel that is trained on."""
    traceparent: str | None = None
    passed_on: Mapping[str, str] = MappingProxyType({})
    """Headers for fixed upstreams only."""


@dataclass(slots=True)
class CallProgress:
    """The progress of a call; read when it fails or is cancelled."""

    engine: Engine | None = None
    dispatched_us: int | None = None
    upstream_s: float = 0.0
    """In engines, in all tries that are over."""


class EngineAnswer(NamedTuple):
    """A reply that goes back to the client: 200, or a refusal that no retry can change."""

    engine: Engine
    reply: UpstreamReply
    dispatched_us: int
    upstream_s: float
    """In engines, in all tries."""


class OpenStream:
    """A stream under way. Counts as outstanding until it is closed, which ends the generation unless it is over."""

    def __init__(self, engine: Engine, dispatched_us: int, outstanding: Counter[str]) -> None:
        self.engine, self.dispatched_us = engine, dispatched_us
        self.upstream_s = 0.0
        """In engines, to the first bytes of this one."""
        self._incoming: IncomingReply | None = None
        self._first = b""
        self._outstanding, self._closed = outstanding, False
        outstanding[engine.url] += 1

    @property
    def incoming(self) -> IncomingReply:
        assert self._incoming is not None, "begun before"
        return self._incoming

    async def begin(self, incoming: IncomingReply) -> None:
        """Wait for the first bytes: until then, a broken engine can be replaced by another one."""
        self._incoming = incoming
        self._first = await incoming.first()
        if not self._first:
            raise UpstreamBroken("the engine's stream is empty")

    async def relay(self, sink: Sink) -> None:
        """The body, as `IncomingReply.relay` gives it."""
        if sink(self._first):
            await self.incoming.relay(sink)

    @property
    def content_type(self) -> str:
        return self.incoming.headers.get("content-type", "")

    def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            self._outstanding[self.engine.url] -= 1
            if self._incoming is not None:
                self._incoming.abort()


class Dispatcher:
    """Sends calls, and knows how many each engine has in flight."""

    def __init__(
        self, settings: GatewaySettings, engines: EngineTable, upstream: HttpUpstream, metrics: Metrics
    ) -> None:
        self._settings, self._engines, self._upstream, self._metrics = settings, engines, upstream, metrics
        self._outstanding: Counter[str] = Counter()

    async def send(self, call: Dispatch, progress: CallProgress) -> EngineAnswer | OpenStream:
        """An engine's answer; where a stream was asked for and comes, it, with its first bytes, for the caller to close.

        Raises NoWorker, NotFound (model) or a subclass of UpstreamFailed.
        """
        budget = RetryBudget(self._settings)
        avoid: set[str] = set()
        while True:
            engine = progress.engine = await self._engine(call, budget, avoid)
            if engine.url in avoid:  # all have failed: each gets another turn
                avoid.clear()
            budget.sent()
            try:
                return await self._attempt(engine, call, progress)
            except (UpstreamUnreachable, UpstreamBroken) as failure:
                self._metrics.upstream_retries.labels(failure.code).inc()
                avoid.add(engine.url)
                await budget.after(failure)

    async def _attempt(self, engine: Engine, call: Dispatch, progress: CallProgress) -> EngineAnswer | OpenStream:
        progress.dispatched_us = dispatched_us = now_us()
        started_s, request, reply = time.perf_counter(), call.request, None
        opened = OpenStream(engine, dispatched_us, self._outstanding)
        try:
            url = engine.url.removesuffix("/v1") + call.protocol.path
            incoming = await self._upstream.send("POST", url, request.forwarded, _headers(engine, call))
            if request.stream and _streams(incoming, call.protocol):
                await opened.begin(incoming)
                incoming.pace(self._settings.stream_idle_timeout_s, self._settings.stream_timeout_s)
            else:
                reply = await whole(incoming)
        except BaseException:  # a cancelled call, too, must not leave an engine generating
            opened.close()
            raise
        finally:
            progress.upstream_s += time.perf_counter() - started_s
        if reply is None:
            opened.upstream_s = progress.upstream_s
            return opened
        opened.close()
        return EngineAnswer(engine, _usable(reply), dispatched_us, progress.upstream_s)

    async def _engine(self, call: Dispatch, budget: RetryBudget, avoid: set[str]) -> Engine:
        engine = self._chosen(call, avoid)
        while engine is None:
            report = self._engines.next_report()  # before looking again: what comes after that look sets it
            engine = self._chosen(call, avoid)
            if engine is None:
                left_s = budget.left_s(NoWorker(self._missing(call), retry_after_s=1.0))
                with suppress(TimeoutError):
                    await asyncio.wait_for(report.wait(), min(POLL_S, left_s))
        return engine

    def _chosen(self, call: Dispatch, avoid: set[str]) -> Engine | None:
        live, model = self._engines.live(), call.request.model
        engine = choose(
            live,
            self._outstanding,
            model=model,
            trajectory=call.trajectory,
            run_id=call.run_id,
            avoid=avoid,
            trains=call.trains,
        )
        if engine is None and live and not self._engines.knows(model):
            raise NotFound(f"no server has the model {model!r}", param="model", code="model_not_found")
        return engine

    def _missing(self, call: Dispatch) -> str:
        if call.trains and any(engine.behind and engine.serves(call.request.model) for engine in self._engines.live()):
            return "every rollout worker is behind: what it samples is too old to be trained"
        return "no rollout worker is ready"


def _streams(incoming: IncomingReply, protocol: EngineRoute) -> bool:
    return incoming.status == 200 and incoming.headers.get("content-type", "").startswith(protocol.stream_type)


def _usable(reply: UpstreamReply) -> UpstreamReply:
    """A 200, or a refusal that no retry can change. Raises EngineAway, UpstreamBroken."""
    if reply.status in AWAY:
        raise EngineAway(f"the engine answers {reply.status}", retry_after_s=1.0)
    if reply.status >= 500 or 200 < reply.status < 400:
        raise UpstreamBroken(f"the engine answers {reply.status}")
    return reply


def _headers(engine: Engine, call: Dispatch) -> dict[str, str]:
    # The engine names its reply after x-request-id, so an engine's log can be joined with the events.
    # Every engine is asked for its tokens; one that knows the header hands them over, and others ignore it.
    headers = {"content-type": "application/json", "x-request-id": call.call_id, TOKENS_HEADER: "1"}
    if call.traceparent:
        headers["traceparent"] = call.traceparent
    return {**call.passed_on, **headers} if engine.fixed else headers

"""A streamed model call, from the engine's first bytes to the client's last.

Invariant (captured means durable): every event is forwarded when it is there, but the end of the stream only after the
log acknowledged the call. A stream that breaks, or is not acknowledged, is broken off: the client gets an error event and
a closed connection, never an end. What was received of it is stored as aborted.
"""

import asyncio
import time
from contextlib import suppress

import structlog

from gateway.call_protocol import EngineReply, ReplyStream
from gateway.capture.events import ModelCall
from gateway.capture.recorder import CallRecorder
from gateway.errors import ClientGone, GatewayError, HeaderList, NotCaptured, UpstreamBroken, UpstreamFailed
from gateway.headers import overhead, reply_headers
from gateway.http.exchange import Exchange
from gateway.metrics import Metrics
from gateway.settings import GatewaySettings
from gateway.upstream.dispatch import CallProgress, OpenStream
from schemas.envelopes import now_us
from schemas.events import Timings

Failure = GatewayError | ClientGone
log = structlog.get_logger()
END_WAIT_S = 1.0
"""How long after the end of the stream the engine may take to end its reply, so that its connection can be used again."""


class Streams:
    """Relays streams, and captures each one once."""

    def __init__(self, settings: GatewaySettings, recorder: CallRecorder, metrics: Metrics) -> None:
        self._settings, self._recorder, self._metrics = settings, recorder, metrics

    async def relay(self, call: ModelCall, opened: OpenStream, exchange: Exchange, started_s: float) -> None:
        """Raises ClientGone, after storing what had come."""
        stream = call.protocol.open_stream(opened.request, self._settings.reply_bytes_max)
        headers: HeaderList = [
            (b"content-type", opened.content_type.encode("latin-1")),
            *reply_headers(call.identity, call.call_id, ()),
        ]
        failure = await self._forward(call, opened, stream, headers, exchange, started_s)
        failure = await self._capture(call, opened, stream, headers, failure)
        self._metrics.streams.labels(_outcome(failure)).inc()
        if isinstance(failure, ClientGone):
            raise failure
        if failure is None:
            exchange.end(stream.held)
        else:
            exchange.write(stream.error(failure))
            exchange.abort()

    async def _forward(
        self,
        call: ModelCall,
        opened: OpenStream,
        stream: ReplyStream,
        headers: HeaderList,
        exchange: Exchange,
        started_s: float,
    ) -> Failure | None:
        try:
            overhead_s = time.perf_counter() - started_s - opened.upstream_s
            self._metrics.overhead_seconds.observe(overhead_s)
            exchange.start(200, [*headers, overhead(overhead_s)])
            await exchange.unless_gone(_pump(opened, stream, exchange))
        except (GatewayError, ClientGone) as broken:
            return broken
        except Exception:  # the client gets no end, the operator the trace
            if not exchange.started:
                raise
            log.exception("bug_in_stream", call_id=call.call_id)
            return GatewayError("internal error")
        finally:
            exchange.on_drained = None
            opened.close()
        return None

    async def _capture(
        self, call: ModelCall, opened: OpenStream, stream: ReplyStream, headers: HeaderList, failure: Failure | None
    ) -> Failure | None:
        """Store the stream, whole or not. Returns why the client must not have its end, if so."""
        try:
            reply = stream.reply(interrupted=failure is not None)
            if failure is None and not reply.ended:
                failure = UpstreamBroken("the engine's stream ended before its end")
            if not reply.choices:
                await self._fail(call, opened, failure or _no_choices())
                return failure
            await self._record(call, opened, stream, headers, reply)
        except NotCaptured as unacknowledged:
            return failure or unacknowledged
        except Exception as bug:
            log.exception("bug_in_stream", call_id=call.call_id)
            failure = bug if isinstance(bug, GatewayError) else GatewayError("internal error")
            await self._fail(call, opened, failure)
        return failure

    async def _record(
        self, call: ModelCall, opened: OpenStream, stream: ReplyStream, headers: HeaderList, reply: EngineReply
    ) -> None:
        timings = Timings(
            received_us=call.received_us,
            dispatched_us=opened.dispatched_us,
            first_token_us=stream.first_token_us,
            done_us=now_us(),
        )
        if stream.first_token_us is not None:
            self._metrics.first_token_seconds.observe((stream.first_token_us - call.received_us) / 1e6)
        await self._recorder.record(call, opened.engine, reply, timings, stream.whole, headers)

    async def _fail(self, call: ModelCall, opened: OpenStream, failure: Failure) -> None:
        await self._recorder.fail(call, CallProgress(opened.engine, opened.dispatched_us), failure)


async def _pump(opened: OpenStream, stream: ReplyStream, exchange: Exchange) -> None:
    """Everything that arrives goes to the client in the same turn of the loop, with no task in between."""
    incoming = opened.incoming

    def forward(piece: bytes) -> bool:
        exchange.hold(len(piece))
        passed = stream.feed(piece)
        if passed:
            exchange.write(passed)
            if exchange.congested:
                incoming.pause()
        return not stream.over

    exchange.on_drained = incoming.resume
    await opened.relay(forward)
    exchange.on_drained = None
    with suppress(TimeoutError, UpstreamFailed):
        async with asyncio.timeout(END_WAIT_S):
            incoming.resume()
            await incoming.relay(lambda piece: stream.feed(piece) is not None)


def _no_choices() -> UpstreamBroken:
    return UpstreamBroken("the engine's stream has no choices", code="upstream_bad_reply")


def _outcome(failure: Failure | None) -> str:
    """How a stream ended, for metrics."""
    if failure is None:
        return "completed"
    return failure.code if isinstance(failure, GatewayError) else "client_disconnected"

"""A streamed model call, from the engine's first bytes to the client's last.

Invariant (captured means durable): every event is forwarded when it is there, but `[DONE]`, or the end of a stream that
has none, only after the log acknowledged the call. A stream that breaks, or is not acknowledged, is broken off: the
client gets an error event and a closed connection, never an end. What was received of it is stored as aborted.
"""

import asyncio
import time
from contextlib import suppress

import structlog

from gateway.capture.delta_encoding import DeltaEncoder
from gateway.capture.events import CallAttempt, Capture, captured, failed
from gateway.capture.idempotency import Attempt, Finished, RecentCalls
from gateway.errors import (
    CLIENT_CLOSED,
    ClientGone,
    GatewayError,
    HeaderList,
    NotCaptured,
    UpstreamBroken,
    UpstreamFailed,
    as_http,
)
from gateway.headers import overhead, reply_headers
from gateway.http.exchange import Exchange
from gateway.metrics import Metrics
from gateway.openai.accumulator import accumulated
from gateway.openai.stream_filter import StreamFilter
from gateway.settings import GatewaySettings
from gateway.upstream.dispatch import CallProgress, OpenStream
from schemas.envelopes import now_us
from schemas.events import Timings

log = structlog.get_logger()
END_WAIT_S = 1.0
"""How long after `[DONE]` the engine may take to end its reply, so that its connection can be used again."""


class Streams:
    """Relays streams, and captures each one once."""

    def __init__(
        self, settings: GatewaySettings, capture: Capture, recent: RecentCalls, deltas: DeltaEncoder, metrics: Metrics
    ) -> None:
        self._settings, self._capture, self._metrics = settings, capture, metrics
        self._recent, self._deltas = recent, deltas

    async def relay(
        self, call: CallAttempt, attempt: Attempt, opened: OpenStream, client: Exchange, started: float
    ) -> None:
        """Raises ClientGone, after storing what had come."""
        stream = StreamFilter(call.request, self._settings.reply_bytes_max)
        headers: HeaderList = [
            (b"content-type", opened.content_type.encode("latin-1")),
            *reply_headers(call.identity, call.call_id, ()),
        ]
        broken = await self._forward(opened, stream, headers, client, started)
        try:
            failure = await self._store(call, attempt, opened, stream, headers, broken)
        except Exception as bug:  # the client gets no end, the operator the trace
            log.exception("bug_in_stream", call_id=call.call_id)
            failure = bug if isinstance(bug, GatewayError) else GatewayError("internal error")
            await self._store_failure(call, opened, failure)
        self._metrics.streams.labels(_word(failure)).inc()
        if isinstance(failure, ClientGone):
            raise failure
        if failure is None:
            client.end(stream.held)
        else:
            client.write(_error_event(failure))
            client.abort()

    async def _forward(
        self, opened: OpenStream, stream: StreamFilter, headers: HeaderList, client: Exchange, started: float
    ) -> GatewayError | ClientGone | None:
        try:
            overhead_s = time.perf_counter() - started - opened.upstream_s
            self._metrics.overhead_seconds.observe(overhead_s)
            client.start(200, [*headers, overhead(overhead_s)])
            await client.unless_gone(_pump(opened, stream, client))
        except (GatewayError, ClientGone) as broken:
            return broken
        finally:
            client.on_drained = None
            opened.close()
        return None

    async def _store(
        self,
        call: CallAttempt,
        attempt: Attempt,
        opened: OpenStream,
        stream: StreamFilter,
        headers: HeaderList,
        failure: GatewayError | ClientGone | None,
    ) -> GatewayError | ClientGone | None:
        """Store the stream, whole or not. Returns why the client must not have its end, if so."""
        accumulator = await accumulated(stream.events, call.request)
        if failure is None and not (stream.over or accumulator.ended):
            failure = UpstreamBroken("the engine's stream ended before its end")
        reply = accumulator.reply(whole=failure is None)
        if reply is None:
            await self._store_failure(call, opened, failure)
            return failure
        timings = Timings(
            received_us=call.received_us,
            dispatched_us=opened.dispatched_us,
            first_token_us=stream.first_token_us,
            done_us=now_us(),
        )
        if stream.first_token_us is not None:
            self._metrics.first_token_seconds.observe((stream.first_token_us - call.received_us) / 1e6)
        encoded = self._deltas.encode(call, reply)
        events = captured(call, opened.server, reply, timings, encoded)
        finished = Finished(stream.whole, headers, events)
        if failure is None:
            # Kept before it is acknowledged: a retry after a missing acknowledgement must publish the same event.
            self._recent.finish(attempt, finished)
        try:
            await self._capture.store(events, lane="named" if call.identity.named else "unnamed")
        except NotCaptured as silent:
            return failure or silent
        except Exception:
            self._recent.forget(attempt, finished)
            raise
        if failure is None:
            self._recent.acknowledged(attempt, finished)
            self._deltas.remember(call, reply, encoded, events)
        return failure

    async def _store_failure(
        self, call: CallAttempt, opened: OpenStream, failure: GatewayError | ClientGone | None
    ) -> None:
        if isinstance(failure, GatewayError):
            reason, message, status = failure.code, failure.message, failure.status
        elif failure is not None:
            reason, message, status = "client_disconnected", "the client closed its connection", CLIENT_CLOSED
        else:
            reason, message, status = "upstream_bad_reply", "the engine's stream has no choices", 502
        progress = CallProgress(opened.server, opened.dispatched_us)
        await self._capture.store_failure(failed(call, progress, reason=reason, message=message, http_status=status))


async def _pump(opened: OpenStream, stream: StreamFilter, client: Exchange) -> None:
    """Everything that arrives goes to the client in the same turn of the loop, with no task in between."""
    exchange = opened.exchange

    def show(piece: bytes) -> bool:
        client.hold(len(piece))
        shown = stream.feed(piece)
        if shown:
            client.write(shown)
            if client.congested:
                exchange.pause()
        return not stream.over

    client.on_drained = exchange.resume
    await opened.relay(show)
    client.on_drained = None
    with suppress(TimeoutError, UpstreamFailed):
        async with asyncio.timeout(END_WAIT_S):
            exchange.resume()
            await exchange.relay(lambda piece: stream.feed(piece) is not None)


def _error_event(error: GatewayError) -> bytes:
    """What the OpenAI SDKs raise for."""
    return b"data: %s\n\n" % as_http(error).body


def _word(failure: GatewayError | ClientGone | None) -> str:
    """How a stream ended, for metrics."""
    if failure is None:
        return "completed"
    return failure.code if isinstance(failure, GatewayError) else "client_disconnected"

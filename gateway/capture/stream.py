"""A streamed model call, from the engine's first bytes to the client's last.

Invariant (captured means durable): every event is forwarded when it is there, but the end of the stream only after the
log acknowledged the call. A stream that breaks, or is not acknowledged, is broken off: the client gets an error event and
a closed connection, never an end. What was received of it is stored as aborted.
"""

import asyncio
import time
from contextlib import suppress

import structlog

from claw_r1.gateway.call_protocol import EngineReply
from claw_r1.gateway.capture.events import ModelCall
from claw_r1.gateway.capture.recorder import CallRecorder
from claw_r1.gateway.errors import ClientGone, GatewayError, HeaderList, NotCaptured, UpstreamBroken, UpstreamFailed
from claw_r1.gateway.headers import overhead, reply_headers
from claw_r1.gateway.http.exchange import Exchange
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.upstream.dispatch import CallProgress, OpenStream
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import Timings

Failure = GatewayError | ClientGone
log = structlog.get_logger()
END_WAIT_S = 1.0
"""The time that the engine may take after the end of the stream to end its reply, so that its connection can be used
again."""


class StreamedCall:
    """One stream: relayed, and captured once."""

    def __init__(
        self,
        call: ModelCall,
        opened: OpenStream,
        exchange: Exchange,
        recorder: CallRecorder,
        metrics: Metrics,
    ) -> None:
        self._call, self._opened, self._exchange = call, opened, exchange
        self._recorder, self._metrics = recorder, metrics
        self._stream = call.protocol.open_stream()
        self._adding: asyncio.Task[None] | None = None
        self._headers: HeaderList = [
            (b"content-type", opened.content_type.encode("latin-1")),
            *reply_headers(call.identity, call.call_id, ()),
        ]

    async def relay(self, started_s: float) -> None:
        """Relay and capture; started_s: when the call was taken up (perf_counter). Raises ClientGone, after storing what had come."""
        failure = await self._capture(await self._forward(started_s))
        outcome = _outcome(failure)
        self._metrics.streams.labels(outcome).inc()
        if failure is not None and self._call.span is not None:
            self._call.span.fail(outcome)
        if isinstance(failure, ClientGone):
            raise failure
        if failure is None:
            self._exchange.end(self._stream.held)
        else:
            self._exchange.write(self._stream.error(failure))
            self._exchange.abort()

    async def _forward(self, started_s: float) -> Failure | None:
        exchange, opened = self._exchange, self._opened
        try:
            overhead_s = time.perf_counter() - started_s - opened.upstream_s
            self._metrics.overhead_seconds.observe(overhead_s)
            exchange.start(200, [*self._headers, overhead(overhead_s)])
            await exchange.unless_gone(self._pump())
        except (GatewayError, ClientGone) as broken:
            return broken
        except Exception:  # the client gets no end, the operator the trace
            if not exchange.started:
                raise
            log.exception("bug_in_stream", call_id=self._call.call_id)
            return GatewayError("internal error")
        finally:
            exchange.on_drained = None
            opened.close()
        return None

    async def _pump(self) -> None:
        """Everything that arrives goes to the client in the same turn of the loop, with no task in between."""
        incoming, stream, exchange = self._opened.incoming, self._stream, self._exchange

        def forward(piece: bytes) -> bool:
            exchange.hold(len(piece))
            passed = stream.feed(piece)
            if passed:
                exchange.write(passed)
                if exchange.congested:
                    incoming.pause()
            if self._adding is None and stream.behind:
                self._adding = asyncio.ensure_future(self._add_up())
            return not stream.over

        exchange.on_drained = incoming.resume
        await self._opened.relay(forward)
        exchange.on_drained = None
        with suppress(TimeoutError, UpstreamFailed):
            async with asyncio.timeout(END_WAIT_S):
                incoming.resume()
                await incoming.relay(lambda piece: stream.feed(piece) is not None)

    async def _add_up(self) -> None:
        """Add up what has passed, in as many turns of the loop as it takes: a stream may come faster than it can be read."""
        while self._stream.behind:
            self._stream.add_up()
            await asyncio.sleep(0)
        self._adding = None

    async def _capture(self, failure: Failure | None) -> Failure | None:
        """Store the stream, whole or not. Returns why the client must not have its end, if so."""
        try:
            if self._adding is not None:
                await self._adding
            await self._add_up()
            reply = self._stream.reply(interrupted=failure is not None)
            if failure is None and not reply.ended:
                failure = UpstreamBroken("the engine's stream ended before its end")
            if reply.choices:
                await self._record(reply)
            else:
                no_choices = UpstreamBroken("the engine's stream has no choices", code="upstream_bad_reply")
                await self._fail(failure or no_choices)
        except NotCaptured as unacknowledged:
            return failure or unacknowledged
        except Exception as bug:
            log.exception("bug_in_stream", call_id=self._call.call_id)
            failure = bug if isinstance(bug, GatewayError) else GatewayError("internal error")
            await self._fail(failure)
        return failure

    async def _record(self, reply: EngineReply) -> None:
        call, opened, first_token_us = self._call, self._opened, self._stream.first_token_us
        timings = Timings(
            received_us=call.received_us,
            dispatched_us=opened.dispatched_us,
            first_token_us=first_token_us,
            done_us=now_us(),
        )
        if first_token_us is not None:
            self._metrics.first_token_seconds.observe((first_token_us - call.received_us) / 1e6)
        await self._recorder.record(call, opened.engine, reply, timings, self._stream.whole, self._headers)

    async def _fail(self, failure: Failure) -> None:
        progress = CallProgress(self._opened.engine, self._opened.dispatched_us)
        await self._recorder.fail(self._call, progress, failure)


def _outcome(failure: Failure | None) -> str:
    """Returns the outcome of a stream, for metrics."""
    if failure is None:
        return "completed"
    return failure.code if isinstance(failure, GatewayError) else "client_disconnected"

"""A model call from its first to its last byte: the hot path.

Invariant (captured means durable): the client gets a reply only after the log acknowledged the events of its call.
"""

import time
from contextlib import nullcontext
from functools import partial
from hashlib import sha256

from claw_r1.gateway.adaptation import Adaptation
from claw_r1.gateway.call_protocol import CallProtocol
from claw_r1.gateway.callers.caller_fields import Hints
from claw_r1.gateway.callers.caller_headers import signs
from claw_r1.gateway.callers.callers import Callers, RetryKey
from claw_r1.gateway.capture.durable_log import EventSink
from claw_r1.gateway.capture.events import ModelCall
from claw_r1.gateway.capture.idempotency import Finished
from claw_r1.gateway.capture.previous_responses import ReadCalls
from claw_r1.gateway.capture.recorder import CallRecorder
from claw_r1.gateway.capture.redaction import redacted_body, redacted_message
from claw_r1.gateway.capture.spans import call_span
from claw_r1.gateway.capture.stream import StreamedCall
from claw_r1.gateway.control.crowding import Crowds
from claw_r1.gateway.errors import ClientGone, GatewayError, HeaderList, NotCaptured, Overloaded, UpstreamRefused
from claw_r1.gateway.foreign_json import error_text
from claw_r1.gateway.headers import client_headers, credentials, overhead, passed_on, reply_headers
from claw_r1.gateway.http.exchange import Exchange
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.gateway.upstream.dispatch import CallProgress, Dispatch, Dispatcher, EngineAnswer, OpenStream
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import Timings
from claw_r1.schemas.http import Channel

JSON = (b"content-type", b"application/json")
NO_HINTS = Hints()
"""The hints of a request whose caller is known: its messages need not stay in memory as objects."""
REFUSAL_CHARACTERS_MAX = 1000
"""The most characters of a refusal that an engine wrote in no shape that clients of the protocol know."""


class ModelCalls:
    """Answers model calls of every protocol. One instance per process; `in_flight` is its load."""

    def __init__(
        self,
        settings: GatewaySettings,
        dispatcher: Dispatcher,
        sink: EventSink,
        metrics: Metrics,
        crowds: Crowds,
        adaptation: Adaptation,
        read_calls: ReadCalls,
    ) -> None:
        self._settings, self._dispatcher, self._metrics, self._crowds = settings, dispatcher, metrics, crowds
        self._adaptation = adaptation
        self._recorder = CallRecorder(settings, sink, metrics, read_calls)
        self._producer = f"gateway/{settings.instance}"
        self._passes_authorization = settings.passes_authorization
        self._callers = Callers(self._recorder.awaits)
        self.recent_replies = self._recorder.recent_replies
        self.in_flight = 0

    async def __call__(self, exchange: Exchange, protocol: CallProtocol) -> None:
        """Answer one call. Raises GatewayError before anything was sent, or ClientGone."""
        self.in_flight += 1
        try:
            await self._answer(exchange, protocol)
        finally:
            self.in_flight -= 1

    async def _answer(self, exchange: Exchange, protocol: CallProtocol) -> None:
        started_s = time.perf_counter()
        call = self._begin(exchange, protocol)
        with call.span or nullcontext():
            await self._carry_out(exchange, call, started_s)

    async def _carry_out(self, exchange: Exchange, call: ModelCall, started_s: float) -> None:
        if call.attempt.finished is not None:
            await self._repeat(exchange, call, call.attempt.finished, started_s)
            return
        self._require_capacity(call)
        if call.request.previous is not None:
            call = call._replace(request=await exchange.unless_gone(self._recorder.previous_responses.continued(call)))
            exchange.hold(len(call.request.forwarded))
        answer, finished = await self._generate(exchange, call)
        if isinstance(answer, OpenStream):
            await StreamedCall(call, answer, exchange, self._recorder, self._metrics).relay(started_s)
        elif finished is None:
            await self._pass_on_refusal(exchange, call, answer, started_s)
        else:
            await self._reply(exchange, finished, started_s, answer.upstream_s)

    def _begin(self, exchange: Exchange, protocol: CallProtocol) -> ModelCall:
        """The call that a request is. Raises InvalidRequest."""
        received_us = now_us()
        headers = client_headers(exchange.headers, exchange.key)
        request = self._adaptation.request(protocol, exchange.body, exchange.key)
        digest = sha256(exchange.body).hexdigest()
        retry = RetryKey(f"{protocol.name}:{digest}", headers.idempotency_key)
        caller = self._callers.caller(exchange.route, exchange.key, signs(exchange.headers), request.hints, retry)
        attempt = self._recorder.begin(caller.identity, headers, retry.digest)
        exchange.call_id, exchange.on_lost = attempt.call_id, partial(self._recorder.lost, attempt)
        span = call_span(protocol, request.model, headers, caller.identity, attempt)
        return ModelCall(
            producer=self._producer,
            caller=caller,
            attempt=attempt,
            headers=headers if span is None else headers._replace(traceparent=span.traceparent),
            protocol=protocol,
            request=request._replace(hints=NO_HINTS),
            request_digest=digest,
            received_us=received_us,
            secrets=credentials(exchange.headers) if self._passes_authorization else (),
            span=span,
        )

    def _require_capacity(self, call: ModelCall) -> None:
        """Raises Overloaded, InvalidRequest. The call is remembered by then, so that its retry is taken for no other call."""
        if self.in_flight > self._settings.calls_max:
            raise Overloaded("too many model calls in flight", retry_after_s=1.0)
        self._crowds.require_room(call.identity)

    async def _generate(self, exchange: Exchange, call: ModelCall) -> tuple[EngineAnswer | OpenStream, Finished | None]:
        """The engine's answer, captured if it is a whole reply. What fails on the way is recorded, unless the log fails."""
        progress = CallProgress()
        try:
            answer = await self._dispatch(exchange, call, progress)
            return answer, await self._record(exchange, call, answer)
        except (GatewayError, ClientGone) as failure:
            exchange.upstream_s = progress.upstream_s
            if not isinstance(failure, NotCaptured):
                await self._recorder.fail(call, progress, failure)
            raise
        except Exception:
            await self._recorder.fail(call, progress, GatewayError("the gateway broke over this call"))
            raise

    async def _dispatch(self, exchange: Exchange, call: ModelCall, progress: CallProgress) -> EngineAnswer | OpenStream:
        dispatch = Dispatch(
            protocol=call.protocol,
            request=call.request,
            trajectory=call.identity.trajectory_id,
            run_id=call.headers.run_id,
            call_id=call.call_id,
            trains=(call.headers.channel or Channel.TRAIN) == Channel.TRAIN,
            traceparent=call.headers.traceparent,
            passed_on=passed_on(exchange.headers, credentials=self._passes_authorization),
        )
        return await exchange.unless_gone(self._dispatcher.send(dispatch, progress))

    async def _record(self, exchange: Exchange, call: ModelCall, answer: EngineAnswer | OpenStream) -> Finished | None:
        """A whole reply, captured; None for a refusal, and for a stream, which is captured at its end."""
        if isinstance(answer, OpenStream):
            return None
        exchange.hold(len(answer.reply.body))
        if answer.reply.status != 200:
            return None
        reply = call.protocol.parse_reply(answer.reply)
        headers = [JSON, *reply_headers(call.identity, call.call_id, reply.spans)]
        timings = Timings(received_us=call.received_us, dispatched_us=answer.dispatched_us, done_us=now_us())
        return await self._recorder.record(call, answer.engine, reply, timings, reply.body, headers)

    async def _repeat(self, exchange: Exchange, call: ModelCall, finished: Finished, started_s: float) -> None:
        await self._recorder.repeat(call, finished)
        self._metrics.replayed.inc()
        exchange.hold(len(finished.body))
        await exchange.reply(200, [*finished.headers, overhead(time.perf_counter() - started_s)], finished.body)

    async def _reply(self, exchange: Exchange, finished: Finished, started_s: float, upstream_s: float) -> None:
        overhead_s = time.perf_counter() - started_s - upstream_s
        await exchange.reply(200, [*finished.headers, overhead(overhead_s)], finished.body)
        self._metrics.overhead_seconds.observe(overhead_s)

    async def _pass_on_refusal(
        self, exchange: Exchange, call: ModelCall, answer: EngineAnswer, started_s: float
    ) -> None:
        """Pass on a refusal of the engine (4xx): the client has to change its request."""
        refusal, body = _refusal(call.protocol, answer, credentials(exchange.headers))
        await self._recorder.fail(call, CallProgress(answer.engine, answer.dispatched_us), refusal)
        headers: HeaderList = [JSON, *reply_headers(call.identity, call.call_id, ())]
        if retry_after := answer.reply.headers.get("retry-after"):
            headers.append((b"retry-after", retry_after.encode("latin-1", "replace")))
        headers.append(overhead(time.perf_counter() - started_s - answer.upstream_s))
        await exchange.reply(answer.reply.status, headers, body)


def _refusal(protocol: CallProtocol, answer: EngineAnswer, secrets: tuple[str, ...]) -> tuple[UpstreamRefused, bytes]:
    """An engine's refusal without secrets for the event, and its body for the client: unchanged where clients can read it.

    secrets: what the engine may repeat and the event must not hold; some providers repeat a key that they refuse.
    """
    status, body = answer.reply.status, answer.reply.body
    message = protocol.error_message(body)
    if message is not None:
        return UpstreamRefused(redacted_message(message, secrets), status), body
    text = redacted_message(error_text(redacted_body(body, secrets)), secrets)[:REFUSAL_CHARACTERS_MAX]
    refusal = UpstreamRefused(text or f"the engine answers {status}", status)
    return refusal, protocol.error(refusal)

"""A model call from its first to its last byte: the hot path.

Invariant (captured means durable): the client gets a reply only after the log acknowledged the events of its call.
"""

import time
from hashlib import sha256

from gateway.capture.delta_encoding import delta_encoder
from gateway.capture.events import CallAttempt, Capture, captured, failed, repeated
from gateway.capture.idempotency import Attempt, Finished, RecentCalls
from gateway.capture.stream import Streams
from gateway.control.crowding import Crowds
from gateway.errors import CLIENT_CLOSED, ClientGone, GatewayError, HeaderList, NotCaptured, Overloaded, UpstreamBroken
from gateway.headers import authorization, client_headers, credentials, overhead, reply_headers
from gateway.http.exchange import Exchange
from gateway.identity import Identity, fresh_lane
from gateway.metrics import Metrics
from gateway.openai.refusal import refusal
from gateway.openai.reply import parse_reply
from gateway.openai.request import nothing_added, parse_chat
from gateway.settings import GatewaySettings
from gateway.upstream.dispatch import CallProgress, Dispatch, Dispatcher, EngineAnswer, OpenStream
from schemas.envelopes import now_us
from schemas.events import Timings

JSON = (b"content-type", b"application/json")


class ModelCalls:
    """The chat completions endpoint. One instance per process; `in_flight` is its load."""

    def __init__(
        self, settings: GatewaySettings, dispatcher: Dispatcher, capture: Capture, metrics: Metrics, crowds: Crowds
    ) -> None:
        self._settings, self._dispatcher, self._capture, self._metrics = settings, dispatcher, capture, metrics
        self._crowds = crowds
        self._recent = RecentCalls(settings.replay_window_s, settings.replay_entries_max, settings.replay_bytes_max)
        self._deltas = delta_encoder(settings)
        self._streams = Streams(settings, capture, self._recent, self._deltas, metrics)
        self._producer = f"gateway/{settings.instance}"
        self._passes_authorization = settings.passes_authorization
        self.in_flight = 0

    async def __call__(self, client: Exchange, identity: Identity | None) -> None:
        """Answer one call. Raises GatewayError before anything was sent, or ClientGone."""
        self.in_flight += 1
        try:
            await self._answer(client, identity)
        finally:
            self.in_flight -= 1

    async def _answer(self, client: Exchange, identity: Identity | None) -> None:
        started = time.perf_counter()
        received_us = now_us()
        body = client.body
        headers = client_headers(client.headers)
        request = parse_chat(body)
        digest = sha256(body).hexdigest()
        who = identity or fresh_lane()
        attempt = self._recent.begin(who, headers, digest)
        client.call_id = attempt.call_id
        if attempt.finished is not None:
            await self._repeat(client, who, attempt, attempt.finished, started, received_us)
            return
        if self.in_flight > self._settings.calls_max:  # known by now, so that its retry is taken for no other call
            raise Overloaded("too many model calls in flight", retry_after_s=1.0)
        self._crowds.admit(who)
        call = CallAttempt(
            producer=self._producer,
            identity=who,
            call_id=attempt.call_id,
            attempt=attempt.number,
            headers=headers,
            request=request,
            request_digest=digest,
            received_us=received_us,
            secrets=credentials(client.headers) if self._passes_authorization else (),
        )
        progress = CallProgress()
        try:
            answer = await self._dispatch(call, client, progress)
            if isinstance(answer, EngineAnswer):
                client.hold(len(answer.reply.body))
            if not self._dispatcher.adds(answer.server):
                call = call._replace(request=nothing_added(call.request))
            finished = await self._finished(call, attempt, answer)
        except (GatewayError, ClientGone):
            raise
        except Exception:
            await self._fail(call, progress, GatewayError.code, "the gateway broke over this call", GatewayError.status)
            raise
        if isinstance(answer, OpenStream):
            await self._streams.relay(call, attempt, answer, client, started)
        elif finished is None:
            await self._refused(client, call, answer, started)
        else:
            await self._reply(client, finished, started, answer.upstream_s)

    async def _finished(
        self, call: CallAttempt, attempt: Attempt, answer: EngineAnswer | OpenStream
    ) -> Finished | None:
        """A completion, captured; None for what is none, or not yet."""
        if isinstance(answer, OpenStream) or answer.reply.status != 200:
            return None
        return await self._finish(call, attempt, answer)

    async def _dispatch(self, call: CallAttempt, client: Exchange, progress: CallProgress) -> EngineAnswer | OpenStream:
        dispatch = Dispatch(
            body=call.request.forwarded,
            plain_body=call.request.body,
            model=call.request.model,
            trajectory=call.identity.trajectory_id,
            run_id=call.headers.run_id,
            call_id=call.call_id,
            traceparent=call.headers.traceparent,
            authorization=authorization(client.headers) if self._passes_authorization else None,
        )
        sending = self._dispatcher.open if call.request.stream else self._dispatcher.send
        try:
            return await client.unless_gone(sending(dispatch, progress))
        except ClientGone:
            await self._fail(call, progress, "client_disconnected", "the client closed its connection", CLIENT_CLOSED)
            raise
        except GatewayError as error:
            client.upstream_s = progress.upstream_s
            await self._fail(call, progress, error.code, error.message, error.status)
            raise

    async def _finish(self, call: CallAttempt, attempt: Attempt, answer: EngineAnswer) -> Finished:
        try:
            reply = parse_reply(answer.reply.body, answer.reply.spans, call.request)
        except UpstreamBroken as nonsense:
            progress = CallProgress(answer.server, answer.dispatched_us)
            await self._fail(call, progress, nonsense.reason, nonsense.message, nonsense.status)
            raise
        spans = reply.choices[0].spans
        headers = [JSON, *reply_headers(call.identity, call.call_id, spans)]
        timings = Timings(received_us=call.received_us, dispatched_us=answer.dispatched_us, done_us=now_us())
        encoded = self._deltas.encode(call, reply)
        events = captured(call, answer.server, reply, timings, encoded)
        finished = Finished(reply.body, headers, events)
        # Kept before it is acknowledged: a retry after a missing acknowledgement must publish the same event.
        self._recent.finish(attempt, finished)
        await self._acknowledge(call.identity, attempt, finished)
        self._deltas.remember(call, reply, encoded, events)
        return finished

    async def _acknowledge(self, identity: Identity, attempt: Attempt, finished: Finished) -> None:
        try:
            await self._capture.store(finished.events, lane="named" if identity.named else "unnamed")
        except NotCaptured:
            raise
        except Exception:
            self._recent.forget(attempt, finished)
            raise
        self._recent.acknowledged(attempt, finished)

    async def _repeat(
        self,
        client: Exchange,
        identity: Identity,
        attempt: Attempt,
        finished: Finished,
        started: float,
        received_us: int,
    ) -> None:
        if attempt.keyed:
            events = tuple([repeated(event, attempt.number, received_us) for event in finished.events])
            finished = finished._replace(events=events)
            self._recent.finish(attempt, finished)
        if finished.events:
            await self._acknowledge(identity, attempt, finished)
        self._metrics.replayed.inc()
        client.hold(len(finished.body))
        await client.reply(200, [*finished.headers, overhead(time.perf_counter() - started)], finished.body)

    async def _reply(self, client: Exchange, finished: Finished, started: float, upstream_s: float) -> None:
        overhead_s = time.perf_counter() - started - upstream_s
        await client.reply(200, [*finished.headers, overhead(overhead_s)], finished.body)
        self._metrics.overhead_seconds.observe(overhead_s)

    async def _refused(self, client: Exchange, call: CallAttempt, answer: EngineAnswer, started: float) -> None:
        """Pass on a refusal of the engine (4xx): the client has to change its request."""
        status, body, message = refusal(answer.reply, credentials(client.headers))
        await self._fail(call, CallProgress(answer.server, answer.dispatched_us), "refused", message, status)
        headers: HeaderList = [JSON, *reply_headers(call.identity, call.call_id, ())]
        if answer.reply.retry_after:
            headers.append((b"retry-after", answer.reply.retry_after.encode("latin-1", "replace")))
        headers.append(overhead(time.perf_counter() - started - answer.upstream_s))
        await client.reply(status, headers, body)

    async def _fail(self, call: CallAttempt, progress: CallProgress, reason: str, message: str, status: int) -> None:
        await self._capture.store_failure(failed(call, progress, reason=reason, message=message, http_status=status))

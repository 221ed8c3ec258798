"""A call becomes events: stored before its client sees the end, and kept for a retry that never saw it.

Invariant: a reply is remembered before its events are acknowledged, since a retry after a missing acknowledgement must
publish the same events; and it is forgotten when a bug keeps it from the log, since that would happen to each repeat.
"""

import asyncio
import time
from collections import OrderedDict

import structlog

from claw_r1.eventlog.errors import LogError, RecordTooLarge
from claw_r1.gateway.call_protocol import EngineReply
from claw_r1.gateway.capture.delta_encoding import DeltaEncoder
from claw_r1.gateway.capture.durable_log import EventSink
from claw_r1.gateway.capture.events import ModelCall, captured, failed, repeated, started, without_bodies
from claw_r1.gateway.capture.idempotency import Attempt, Finished, RecentCalls
from claw_r1.gateway.capture.previous_responses import PreviousResponses, ReadCalls
from claw_r1.gateway.capture.recent_replies import RecentReplies
from claw_r1.gateway.capture.span_content import content_attributes
from claw_r1.gateway.capture.spans import reply_attributes
from claw_r1.gateway.errors import CLIENT_CLOSED, ClientGone, GatewayError, HeaderList, NotCaptured
from claw_r1.gateway.headers import ClientHeaders
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.paths import Identity
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.gateway.upstream.dispatch import CallProgress
from claw_r1.gateway.upstream.engines import Engine
from claw_r1.schemas.events import CallCaptured, Timings
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS

SESSIONS_MAX = 10_000
log = structlog.get_logger()


class CallRecorder:
    """Records the calls of one process."""

    def __init__(self, settings: GatewaySettings, sink: EventSink, metrics: Metrics, read_calls: ReadCalls) -> None:
        self._sink, self._metrics = sink, metrics
        self.recent_replies = RecentReplies()
        self.previous_responses = PreviousResponses(read_calls, settings.body_bytes_max)
        self._recent = RecentCalls(settings.replay_window_s, settings.replay_entries_max, settings.replay_bytes_max)
        # Where replies may go out without their events, a base may be missing, so calls are written in full.
        deltas_bytes_max = 0 if settings.capture_on_failure == "availability" else settings.parent_bytes_max
        self._deltas = DeltaEncoder(deltas_bytes_max, settings.parent_calls_max)
        self._started: OrderedDict[Identity, None] = OrderedDict()
        """Sessions whose beginning is in the log."""
        self.awaits, self.lost = self._recent.awaits, self._recent.lost

    def begin(self, identity: Identity, headers: ClientHeaders, digest: str) -> Attempt:
        """Begins an attempt (`RecentCalls.begin`)."""
        return self._recent.begin(identity, headers, digest)

    async def record(
        self, call: ModelCall, engine: Engine, reply: EngineReply, timings: Timings, body: bytes, headers: HeaderList
    ) -> Finished:
        """Store a reply, whether it ended or not. Raises NotCaptured.

        body, headers: what the client gets, and a retry gets again.
        """
        encoded = self._deltas.encode(call, reply)
        events = captured(call, engine, reply, timings, encoded)
        finished = Finished(body, headers, events)
        if call.span is not None:
            call.span.add(reply_attributes(reply, engine))
            if call.span.takes_content:
                call.span.add(content_attributes(call, events))
        if call.caller.on_reply is not None:
            call.caller.on_reply([choice.body for choice in reply.choices])
        if not reply.ended:
            await self._store(call, finished)
            return finished
        self._recent.finish(call.attempt, finished)
        await self._acknowledge(call, finished)
        self._deltas.remember(call, reply, encoded, events)
        self.previous_responses.remember(call, reply)
        if call.identity.named:
            self.recent_replies.note(call.identity, call.call_id, reply.spans)
        return finished

    async def repeat(self, call: ModelCall, finished: Finished) -> None:
        """Let a reply be sent once more: what of it is not acknowledged is stored before. Raises NotCaptured."""
        if call.attempt.keyed:
            again = call.attempt.number, call.received_us, call.headers.key_name
            events = tuple([repeated(event, *again) for event in finished.events])
            finished = finished._replace(events=events)
            self._recent.finish(call.attempt, finished)
        if finished.events:
            await self._acknowledge(call, finished)

    async def fail(self, call: ModelCall, progress: CallProgress, failure: GatewayError | ClientGone) -> None:
        """Store that a call has no tokens. Best effort: a failure that is not in the log costs an explanation, no data."""
        if isinstance(failure, ClientGone):
            reason, message, status = "client_disconnected", "the client closed its connection", CLIENT_CLOSED
        else:
            reason, message, status = failure.code, failure.message, failure.status
        if call.span is not None:
            call.span.fail(reason)
        event = failed(call, progress, reason=reason, message=message, http_status=status)
        self._metrics.failed.labels(event.reason).inc()
        log.warning("call_failed", call_id=event.call_id, reason=event.reason, upstream=event.upstream)
        try:
            await self._sink.publish(CALLS, group_key(event.group_id), event)
        except LogError as unacknowledged:
            log.error("failure_not_captured", call_id=event.call_id, error=str(unacknowledged))

    async def _acknowledge(self, call: ModelCall, finished: Finished) -> None:
        try:
            await self._store(call, finished)
        except NotCaptured:
            raise
        except Exception:
            self._recent.forget(call.attempt, finished)
            raise
        self._recent.acknowledged(call.attempt, finished)

    async def _store(self, call: ModelCall, finished: Finished) -> None:
        """Returns once all events are acknowledged. Raises NotCaptured when the log does not do so in time."""
        events, started_s = finished.events, time.perf_counter()
        try:
            if call.caller.idle_s is not None:
                await self._start(call)
            if len(events) == 1:  # nearly always; a task less
                await self._publish(events[0])
            else:
                await asyncio.gather(*(self._publish(event) for event in events))
        except LogError as unacknowledged:
            self._metrics.unacknowledged.inc()
            log.error("call_not_captured", call_id=call.call_id, error=str(unacknowledged))
            raise NotCaptured("the call could not be captured; send it again", retry_after_s=1.0) from unacknowledged
        self._metrics.capture_ack_seconds.observe(time.perf_counter() - started_s)
        for event in events:
            self._metrics.capture("named" if call.identity.named else "unnamed")
            for missing in event.integrity.missing:
                self._metrics.incomplete.labels(missing).inc()

    async def _start(self, call: ModelCall) -> None:
        """Before the first call of a session that nobody completes: for that it has to be known. Raises LogError."""
        if call.identity not in self._started:
            await self._sink.publish(CALLS, group_key(call.identity.group_id), started(call))
            self._started[call.identity] = None
        self._started.move_to_end(call.identity)
        if len(self._started) > SESSIONS_MAX:
            self._started.popitem(last=False)

    async def _publish(self, event: CallCaptured) -> None:
        key = group_key(event.group_id)
        try:
            await self._sink.publish(CALLS, key, event)
        except RecordTooLarge:
            await self._sink.publish(CALLS, key, without_bodies(event))

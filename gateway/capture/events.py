"""Events of model calls: made from what the engine said, acknowledged by the log before the client sees the end.

Output: `calls`, key group_id: CallCaptured (one per choice) or CallFailed. Delivery: at least once, by event_id.
"""

import asyncio
import time
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from eventlog.errors import LogError, RecordTooLarge
from gateway.call_protocol import CallProtocol, CallRequest, Choice, EngineReply
from gateway.capture.durable_log import EventSink
from gateway.capture.idempotency import Attempt
from gateway.capture.redaction import redacted, redacted_body
from gateway.errors import NotCaptured
from gateway.headers import ClientHeaders
from gateway.identity import Identity
from gateway.metrics import Metrics
from gateway.upstream.dispatch import CallProgress
from gateway.upstream.engines import Engine
from schemas.arrays import ITEM_BYTES
from schemas.envelopes import envelope, now_us
from schemas.events import CallCaptured, CallFailed, Edge, Envelope, Integrity, Timings, Usage
from schemas.http import Channel
from schemas.keys import group_key
from schemas.topics import CALLS

MESSAGE_CHARACTERS_MAX = 2000
SECRET_CHARACTERS_MIN = 8
"""No provider's key is shorter. Placeholders where no key is needed (EMPTY, none) are, and stand in many a reply."""
COMPLETE = Integrity(complete=True)
log = structlog.get_logger()


class ModelCall(NamedTuple):
    """One attempt of a model call, as it came in."""

    producer: str
    identity: Identity
    attempt: Attempt
    headers: ClientHeaders
    protocol: CallProtocol
    request: CallRequest
    request_digest: str
    received_us: int
    secrets: tuple[str, ...] = ()
    """Credentials that fixed upstreams get, and no event may hold."""

    @property
    def call_id(self) -> str:
        return self.attempt.call_id


class EncodedCall(NamedTuple):
    """How one call is written: its prompt and its body, each against an earlier call or in full."""

    prompt: Edge
    request: Edge
    depth: int
    """Calls between it and one that is written in full."""
    base_digest: str = ""
    """Of the call that the prompt is written against; empty where it is written in full."""


def captured(
    call: ModelCall, engine: Engine, reply: EngineReply, timings: Timings, encoded: EncodedCall
) -> tuple[CallCaptured, ...]:
    """One event per choice; choice k > 0 is the call `<call_id>.<k>`."""
    alone = len(reply.choices) == 1
    secrets = [secret for secret in call.secrets if engine.fixed and len(secret) >= SECRET_CHARACTERS_MIN]
    return tuple(
        [
            CallCaptured(
                envelope=_envelope(call),
                group_id=call.identity.group_id,
                trajectory_id=call.identity.trajectory_id,
                call_id=choice_id(call.call_id, choice.index),
                attempt=call.attempt.number,
                choice=choice.index,
                prompt=encoded.prompt,
                base_digest=encoded.base_digest,
                response_ids=choice.response_ids,
                response_logprobs=choice.response_logprobs,
                spans=choice.spans,
                sampling=call.request.sampling,
                finish_reason=choice.finish_reason and redacted(choice.finish_reason, secrets),
                request=encoded.request,
                response_body=redacted_body(choice.body, secrets),
                model_id=engine.model_id or call.request.model or "",
                worker_id=engine.worker_id,
                upstream=engine.url,
                agent=call.headers.agent,
                channel=call.headers.channel or Channel.TRAIN,
                tags=call.headers.tags,
                status="aborted" if choice.aborted else "completed",
                http_status=200,
                idempotency_key=call.headers.idempotency_key,
                usage=reply.usage if alone else _own_usage(reply.usage, choice),
                timings=timings,
                integrity=Integrity(complete=False, missing=choice.missing) if choice.missing else COMPLETE,
            )
            for choice in reply.choices
        ]
    )


def failed(call: ModelCall, progress: CallProgress, *, reason: str, message: str, http_status: int) -> CallFailed:
    """The event of a call without tokens."""
    engine, done_us = progress.engine, now_us()
    return CallFailed(
        envelope=_envelope(call),
        group_id=call.identity.group_id,
        trajectory_id=call.identity.trajectory_id,
        call_id=call.call_id,
        attempt=call.attempt.number,
        http_status=http_status,
        reason=reason,
        message=message[:MESSAGE_CHARACTERS_MAX],
        model_id=(engine and engine.model_id) or call.request.model or "",
        worker_id=engine.worker_id if engine else None,
        upstream=engine.url if engine else "",
        agent=call.headers.agent,
        channel=call.headers.channel or Channel.TRAIN,
        timings=Timings(received_us=call.received_us, dispatched_us=progress.dispatched_us or done_us, done_us=done_us),
    )


def choice_id(call_id: str, choice: int) -> str:
    """Id of the call that a choice is."""
    return f"{call_id}.{choice}" if choice else call_id


def repeated(event: CallCaptured, attempt: int, received_us: int) -> CallCaptured:
    """The same reply, given once more to a later try of its call: which of the captures counts is told by time."""
    own = event.envelope
    return replace(
        event,
        envelope=envelope(own.producer, run_id=own.run_id, traceparent=own.traceparent, causation_id=own.event_id),
        attempt=attempt,
        timings=Timings(received_us=received_us, dispatched_us=received_us, done_us=received_us),
    )


def without_bodies(event: CallCaptured) -> CallCaptured:
    """The event with its bodies left out (digest and length of the request stay): what fits when the whole does not."""
    integrity = Integrity(complete=False, missing=(*event.integrity.missing, "request_body", "response_body"))
    request = replace(event.request, base_call_id=None, keep=0, suffix=b"")
    return replace(event, request=request, response_body=b"", integrity=integrity)


class Capture:
    """Publishes events of calls, and counts them."""

    def __init__(self, log: EventSink, metrics: Metrics) -> None:
        self._log, self._metrics = log, metrics

    async def store(self, events: tuple[CallCaptured, ...], *, lane: str) -> None:
        """Returns once all are acknowledged. Raises NotCaptured when the log does not do so in time."""
        started = time.perf_counter()
        try:
            if len(events) == 1:  # nearly always; a task less
                await self._publish(events[0])
            else:
                await asyncio.gather(*(self._publish(event) for event in events))
        except LogError as unacknowledged:
            self._metrics.unacknowledged.inc()
            log.error("call_not_captured", call_id=events[0].call_id, error=str(unacknowledged))
            raise NotCaptured("the call could not be captured; send it again", retry_after_s=1.0) from unacknowledged
        self._metrics.capture_ack_seconds.observe(time.perf_counter() - started)
        for event in events:
            self._metrics.capture(lane)
            for missing in event.integrity.missing:
                self._metrics.incomplete.labels(missing).inc()

    async def store_failure(self, event: CallFailed) -> None:
        """Best effort: a failure that is not in the log costs an explanation, no data."""
        self._metrics.failed.labels(event.reason).inc()
        log.warning("call_failed", call_id=event.call_id, reason=event.reason, upstream=event.upstream)
        try:
            await self._log.publish(CALLS, group_key(event.group_id), event)
        except LogError as unacknowledged:
            log.error("failure_not_captured", call_id=event.call_id, error=str(unacknowledged))

    async def _publish(self, event: CallCaptured) -> None:
        key = group_key(event.group_id)
        try:
            await self._log.publish(CALLS, key, event)
        except RecordTooLarge:
            await self._log.publish(CALLS, key, without_bodies(event))


def _envelope(call: ModelCall) -> Envelope:
    return envelope(call.producer, run_id=call.headers.run_id, traceparent=call.headers.traceparent)


def _own_usage(usage: Usage, choice: Choice) -> Usage:
    # The engine counts all choices of a reply together; each event counts its own, so that sums come out right.
    return replace(usage, completion_tokens=len(choice.response_ids) // ITEM_BYTES)

"""Events of model calls, made from the engine's reply.

Output: `calls`, key group_id: CallCaptured (one per choice) or CallFailed, and TrajectoryStarted of a session that nobody
completes. Delivery: at least once, by event_id.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from claw_r1.gateway.call_protocol import CallProtocol, CallRequest, Choice, EngineReply
from claw_r1.gateway.callers.callers import Caller
from claw_r1.gateway.capture.idempotency import Attempt
from claw_r1.gateway.capture.redaction import redacted, redacted_body
from claw_r1.gateway.headers import ClientHeaders
from claw_r1.gateway.paths import Identity
from claw_r1.gateway.upstream.dispatch import CallProgress
from claw_r1.gateway.upstream.engines import Engine
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.envelopes import decision_id, envelope, now_us
from claw_r1.schemas.events import (
    CallCaptured,
    CallFailed,
    Edge,
    Envelope,
    Integrity,
    Timings,
    TrajectoryStarted,
    Usage,
)
from claw_r1.schemas.http import Channel

if TYPE_CHECKING:
    from claw_r1.runtime.monitoring.spans import OpenSpan

MESSAGE_CHARACTERS_MAX = 2000
SECRET_CHARACTERS_MIN = 8
"""No provider's key is shorter. Placeholders where no key is needed (EMPTY, none) are, and
stand in many a reply."""
COMPLETE = Integrity(complete=True)


class ModelCall(NamedTuple):
    """One attempt of a model call, as it came in."""

    producer: str
    caller: Caller
    attempt: Attempt
    headers: ClientHeaders
    protocol: CallProtocol
    request: CallRequest
    request_digest: str
    received_us: int
    secrets: tuple[str, ...] = ()
    """Credentials that fixed upstreams get, and no event may hold."""
    span: "OpenSpan | None" = None

    @property
    def identity(self) -> Identity:
        return self.caller.identity

    @property
    def call_id(self) -> str:
        return self.attempt.call_id


class EncodedCall(NamedTuple):
    """The encoding of one call: its prompt and its body, each against an earlier call or in full."""

    prompt: Edge
    request: Edge
    depth: int
    """Calls between it and one that is written in full."""
    base_digest: str = ""
    """The digest of the call that the prompt is written against; empty where it is written in full."""


def captured(
    call: ModelCall, engine: Engine, reply: EngineReply, timings: Timings, encoded: Sequence[EncodedCall]
) -> tuple[CallCaptured, ...]:
    """One event per choice; choice k > 0 is the call `<call_id>.<k>`. encoded: how each is written, in their order."""
    alone, caller = len(reply.choices) == 1, call.caller
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
                prompt=edges.prompt,
                base_digest=edges.base_digest,
                response_ids=choice.response_ids,
                response_logprobs=choice.response_logprobs,
                spans=choice.spans,
                sampling=choice.sampling or call.request.sampling,
                finish_reason=choice.finish_reason and redacted(choice.finish_reason, secrets),
                request=edges.request,
                response_body=redacted_body(choice.body, secrets),
                model_id=engine.model_id or call.request.model or "",
                worker_id=engine.worker_id,
                upstream=engine.url,
                protocol=call.protocol.name,
                client=caller.client,
                call_kind=caller.kind,
                has_tools=caller.has_tools,
                parent_trajectory=caller.parent,
                identity_source=caller.source,
                adapted=call.request.adapted,
                agent=call.headers.agent,
                channel=call.headers.channel or Channel.TRAIN,
                tags=call.headers.tags,
                status="aborted" if choice.aborted else "completed",
                http_status=200,
                idempotency_key=call.headers.idempotency_key,
                usage=reply.usage if alone else _own_usage(reply.usage, choice),
                timings=timings,
                integrity=_integrity((*choice.missing, *call.request.missing)),
            )
            for choice, edges in zip(reply.choices, encoded, strict=True)
        ]
    )


def started(call: ModelCall) -> TrajectoryStarted:
    """The event of a session's first call: the same one, whichever process makes it. Whatever an app registers of its session
    counts before it, whenever that comes: another process may make this one long after the first call."""
    who = call.identity
    event_id = decision_id("session", who.group_id, who.trajectory_id)
    return TrajectoryStarted(
        envelope=envelope(call.producer, event_id=event_id, run_id=call.headers.run_id, key_name=call.headers.key_name),
        group_id=who.group_id,
        trajectory_id=who.trajectory_id,
        channel=call.headers.channel or Channel.TRAIN,
        agent=call.headers.agent,
        idle_s=call.caller.idle_s,
        revision=-1,
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


def repeated(event: CallCaptured, attempt: int, received_us: int, key_name: str | None) -> CallCaptured:
    """The same reply, given once more to a later attempt of its call; by their times it is decided which capture counts.

    key_name: of whoever tries again.
    """
    own = event.envelope
    return replace(
        event,
        envelope=envelope(
            own.producer,
            run_id=own.run_id,
            traceparent=own.traceparent,
            causation_id=own.event_id,
            key_name=key_name,
        ),
        attempt=attempt,
        timings=Timings(received_us=received_us, dispatched_us=received_us, done_us=received_us),
    )


def without_bodies(event: CallCaptured) -> CallCaptured:
    """The event with its bodies left out (digest and length of the request stay): what fits when the whole does not."""
    integrity = Integrity(complete=False, missing=(*event.integrity.missing, "request_body", "response_body"))
    request = replace(event.request, base_call_id=None, keep=0, keep_end=0, suffix=b"")
    return replace(event, request=request, response_body=b"", integrity=integrity)


def _envelope(call: ModelCall) -> Envelope:
    labels = call.headers
    return envelope(call.producer, run_id=labels.run_id, traceparent=labels.traceparent, key_name=labels.key_name)


def _integrity(missing: tuple[str, ...]) -> Integrity:
    return Integrity(complete=False, missing=missing) if missing else COMPLETE


def _own_usage(usage: Usage, choice: Choice) -> Usage:
    # The engine counts all choices of a reply together; each event counts its own, so that sums come out right.
    own = replace(usage, completion_tokens=len(choice.response_ids) // ITEM_BYTES)
    return own if choice.prompt_ids is None else replace(own, prompt_tokens=len(choice.prompt_ids) // ITEM_BYTES)

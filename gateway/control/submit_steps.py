"""POST …/v1/submit_steps, Claw-R1's own: steps that were sampled elsewhere become the events that calls become.

Invariant: what is stored holds what a capture holds: ids are int32 from 0 up, log-probabilities as many as ids and at most
0, spans tile the response. Anything else is refused with its field. The same step again is the same call.

Output: `calls` (CallCaptured, TrajectoryCompleted) and `rewards` (RewardAssigned), key group_id.
"""

from hashlib import sha256
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from claw_r1.datapool.digests import step_digest
from claw_r1.gateway.control.bodies import (
    Body,
    CompleteTrajectory,
    Count,
    JsonValue,
    NameBody,
    RewardValue,
    trajectory_completed,
)
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.headers import ClientHeaders
from claw_r1.gateway.paths import Identity
from claw_r1.gateway.tokens.packing import packed_ids, packed_logprobs
from claw_r1.gateway.tokens.version_spans import spans_of
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.envelopes import decision_id, envelope, new_id, now_us
from claw_r1.schemas.events import (
    CallCaptured,
    Edge,
    Integrity,
    RewardAssigned,
    Sampling,
    Timings,
    TrajectoryCompleted,
    Usage,
    VersionSpan,
)
from claw_r1.schemas.http import CallKind, Channel

PROTOCOL = "submit_steps"
TOKENS = {"prompt_ids", "response_ids", "rollout_log_probs", "spans"}
"""Fields that the event holds by themselves, and not as the text of its request."""


def _ids(value: Any) -> bytes:  # any JSON value, as below
    packed = packed_ids(value)
    if not packed:
        raise ValueError("must be a list of token ids, integers from 0 to 2^31 - 1, that is not empty")
    return packed


def _logprobs(value: Any) -> bytes:
    packed = packed_logprobs(value) if isinstance(value, list) else None
    if packed is None:
        raise ValueError("must be a list of log-probabilities: finite numbers, none above 0")
    return packed


TokenIdsBody = Annotated[bytes, BeforeValidator(_ids), WithJsonSchema({"type": "array", "items": {"type": "integer"}})]
Logprobs = Annotated[bytes, BeforeValidator(_logprobs), WithJsonSchema({"type": "array", "items": {"type": "number"}})]


class SamplingUsed(Body):
    """The sampling parameters of a step; by default without anything that shapes a distribution."""

    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1, strict=True)] = 1.0
    top_k: Count = 0
    min_p: Annotated[float, Field(ge=0, le=1, strict=True)] = 0.0


class SubmittedStep(Body):
    """One step. `spans`: rows `[run/version, start, end]` over its response; `policy_version`
    is one for all of it."""

    prompt_ids: TokenIdsBody
    response_ids: TokenIdsBody
    rollout_log_probs: Logprobs | None = None
    spans: list[Any] | None = None
    policy_version: Annotated[int, Field(ge=0, lt=1 << 63, strict=True)] | None = None
    run_id: NameBody | None = None
    reward: RewardValue | None = None
    call_id: NameBody | None = None
    step_index: Count | None = None
    trajectory_uid: str = ""
    prompt_uid: str = ""
    is_last: bool = False
    model: NameBody | None = None
    finish_reason: NameBody | None = None
    sampling: SamplingUsed = SamplingUsed()
    multi_modal_data: JsonValue = None
    metadata: JsonValue = None

    @field_validator("rollout_log_probs")
    @classmethod
    def _as_many(cls, logprobs: bytes | None, info: ValidationInfo) -> bytes | None:
        if logprobs is not None and len(logprobs) != len(info.data.get("response_ids", logprobs)):
            raise ValueError("must be as many as response_ids")
        return logprobs

    @field_validator("spans")
    @classmethod
    def _tiling(cls, rows: list[Any] | None, info: ValidationInfo) -> list[Any] | None:
        response = info.data.get("response_ids")
        if rows is not None and response and spans_of(rows, len(response) // ITEM_BYTES).missing:
            raise ValueError("must be rows [run/version, start, end] that tile the response")
        return rows

    def versions(self, run_id: str | None) -> tuple[VersionSpan, ...]:
        """Returns the versions that sampled the step; none where they are not known. run_id: that of the request."""
        length = len(self.response_ids) // ITEM_BYTES
        if self.spans is not None:
            return spans_of(self.spans, length).spans
        run_id = self.run_id or run_id
        if run_id is None or self.policy_version is None:
            return ()
        return (VersionSpan(run_id=run_id, version=self.policy_version, start=0, end=length),)


class SubmitSteps(Body):
    """POST …/submit_steps"""

    steps: Annotated[tuple[SubmittedStep, ...], Field(min_length=1)]
    channel: NameBody | None = None


class StepEvents(NamedTuple):
    """The events of one request, in the order in which they are stored."""

    calls: list[CallCaptured]
    rewards: list[RewardAssigned]
    completion: TrajectoryCompleted | None


def step_events(body: SubmitSteps, who: Identity, headers: ClientHeaders, producer: str) -> StepEvents:
    """The events of these steps. Raises InvalidRequest where they belong to others, or two of them are the same."""
    calls: dict[str, CallCaptured] = {}
    rewards = []
    now = now_us()
    for position, step in enumerate(body.steps):
        at = f"steps.{position}"
        for name, own in (("trajectory_uid", who.trajectory_id), ("prompt_uid", who.group_id)):
            if getattr(step, name) not in ("", own):
                raise InvalidRequest(f"{at}.{name} differs from the path's", param=f"{at}.{name}")
        call_id = _call_id(step, position, who, headers)
        if call_id in calls:
            raise InvalidRequest(f"{at} is the same step as one before it: see call_id, step_index", param=at)
        calls[call_id] = event = _captured(step, call_id, now + position, who, headers, body.channel, producer)
        if step.reward is not None:
            rewards.append(_reward(step.reward, event))
    is_over = any(step.is_last for step in body.steps)
    completion = trajectory_completed(CompleteTrajectory(), who, headers, producer) if is_over else None
    return StepEvents(list(calls.values()), rewards, completion)


def _call_id(step: SubmittedStep, position: int, who: Identity, headers: ClientHeaders) -> str:
    if step.call_id is not None:
        return step.call_id
    if step.step_index is not None:
        return decision_id("step", who.group_id, who.trajectory_id, str(step.step_index))
    key = headers.idempotency_key
    return decision_id("step", who.group_id, who.trajectory_id, key, str(position)) if key else new_id()


def _captured(
    step: SubmittedStep,
    call_id: str,
    received_us: int,
    who: Identity,
    headers: ClientHeaders,
    channel: str | None,
    producer: str,
) -> CallCaptured:
    logprobs, spans = step.rollout_log_probs or b"", step.versions(headers.run_id)
    prompt = _whole(step.prompt_ids, ITEM_BYTES)
    digest = step_digest(prompt.full_digest, step.response_ids, logprobs, spans)
    event_id = decision_id("CallCaptured", who.group_id, who.trajectory_id, call_id, digest)
    absent = (("logprobs", logprobs), ("version_unknown", spans), ("multimodal", not step.multi_modal_data))
    missing = tuple(word for word, there in absent if not there)
    return CallCaptured(
        envelope=envelope(producer, event_id=event_id, run_id=step.run_id or headers.run_id, key_name=headers.key_name),
        group_id=who.group_id,
        trajectory_id=who.trajectory_id,
        call_id=call_id,
        prompt=prompt,
        response_ids=step.response_ids,
        response_logprobs=logprobs,
        spans=spans,
        sampling=Sampling(**step.sampling.model_dump()),
        finish_reason=step.finish_reason,
        request=_whole(orjson.dumps(step.model_dump(exclude=TOKENS, exclude_unset=True)), 1),
        response_body=b"{}",
        model_id=step.model or "",
        upstream="",
        agent=headers.agent,
        protocol=PROTOCOL,
        call_kind=CallKind.MAIN,  # who submits a step wants it trained, unless a tag says otherwise
        channel=channel or headers.channel or Channel.TRAIN,
        tags=headers.tags,
        status="completed",
        http_status=200,
        usage=Usage(prompt_tokens=prompt.full_length, completion_tokens=len(step.response_ids) // ITEM_BYTES),
        timings=Timings(received_us=received_us, dispatched_us=received_us, done_us=received_us),
        integrity=Integrity(complete=not missing, missing=missing),
    )


def _whole(data: bytes, unit: int) -> Edge:
    return Edge(suffix=data, full_length=len(data) // unit, full_digest=sha256(data).hexdigest())


def _reward(value: float, call: CallCaptured) -> RewardAssigned:
    subject = call.group_id, call.trajectory_id, call.call_id
    own = envelope(
        call.envelope.producer,
        event_id=decision_id("RewardAssigned", *subject, repr(value)),
        run_id=call.envelope.run_id,
        key_name=call.envelope.key_name,
    )
    return RewardAssigned(envelope=own, group_id=subject[0], trajectory_id=subject[1], call_id=subject[2], value=value)

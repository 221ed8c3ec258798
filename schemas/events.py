"""Event types, generated from avro/*.avsc by `python -m schemas.generate`. Do not edit."""

# ruff: noqa: E501, D101, D102
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.binary import NULL, Reader, again, array, boolean, data, double, int32, long, mapping, maybe_double, text
from schemas.quick import quick

CallStatus = Literal["completed", "aborted", "unknown"]
"""How a captured call ended."""
TrajectoryStatus = Literal["open", "abandoned", "failed", "completed", "evicted", "unknown"]
"""Life of a trajectory, in ascending rank: the highest rank seen wins."""
RunStatus = Literal["finished", "stopped", "failed", "unknown"]
"""How a training run ended."""
WorkerState = Literal["starting", "ready", "updating", "draining", "dead", "unknown"]
"""What a rollout worker can do now; only `ready` and `updating` take traffic."""
_CALLSTATUS = {"completed": b"\x00", "aborted": b"\x02", "unknown": b"\x04"}
_TRAJECTORYSTATUS = {
    "open": b"\x00",
    "abandoned": b"\x02",
    "failed": b"\x04",
    "completed": b"\x06",
    "evicted": b"\x08",
    "unknown": b"\n",
}
_RUNSTATUS = {"finished": b"\x00", "stopped": b"\x02", "failed": b"\x04", "unknown": b"\x06"}
_WORKERSTATE = {
    "starting": b"\x00",
    "ready": b"\x02",
    "updating": b"\x04",
    "draining": b"\x06",
    "dead": b"\x08",
    "unknown": b"\n",
}
_CALLSTATUS_SYMBOLS: list[CallStatus] = ["completed", "aborted", "unknown"]
_TRAJECTORYSTATUS_SYMBOLS: list[TrajectoryStatus] = ["open", "abandoned", "failed", "completed", "evicted", "unknown"]
_RUNSTATUS_SYMBOLS: list[RunStatus] = ["finished", "stopped", "failed", "unknown"]
_WORKERSTATE_SYMBOLS: list[WorkerState] = ["starting", "ready", "updating", "draining", "dead", "unknown"]


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What every event carries, whoever made it."""

    event_id: str
    """Deduplicates: the same fact sent twice has the same id."""
    occurred_at_us: int
    """UTC microseconds on the clock of the producer; never used to order facts of different producers."""
    producer: str
    """Component and instance, for example gateway/7f3a."""
    run_id: str | None = None
    """The training run that this fact belongs to, where there is one."""
    tenant: str = "default"
    """Owner of the data."""
    causation_id: str | None = None
    """event_id of the event that directly caused this one."""
    correlation_id: str | None = None
    """Shared by everything that one request of a client set in motion."""
    traceparent: str | None = None
    """W3C trace context of the request."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "event_id": self.event_id,
            "occurred_at_us": self.occurred_at_us,
            "producer": self.producer,
            "run_id": self.run_id,
            "tenant": self.tenant,
            "causation_id": self.causation_id,
            "correlation_id": self.correlation_id,
            "traceparent": self.traceparent,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.event_id),
                long(self.occurred_at_us),
                text(self.producer),
                NULL if self.run_id is None else b"\x02" + text(self.run_id),
                text(self.tenant),
                NULL if self.causation_id is None else b"\x02" + text(self.causation_id),
                NULL if self.correlation_id is None else b"\x02" + text(self.correlation_id),
                NULL if self.traceparent is None else b"\x02" + text(self.traceparent),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "Envelope":
        return cls(
            event_id=d["event_id"],
            occurred_at_us=d["occurred_at_us"],
            producer=d["producer"],
            run_id=d["run_id"],
            tenant=d["tenant"],
            causation_id=d["causation_id"],
            correlation_id=d["correlation_id"],
            traceparent=d["traceparent"],
        )

    @classmethod
    def read(cls, r: Reader) -> "Envelope":
        return cls(
            event_id=r.text(),
            occurred_at_us=r.long(),
            producer=r.text(),
            run_id=r.text() if r.branch() else None,
            tenant=r.text(),
            causation_id=r.text() if r.branch() else None,
            correlation_id=r.text() if r.branch() else None,
            traceparent=r.text() if r.branch() else None,
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class FactPosition:
    """Where a fact lies."""

    topic: str
    partition: int
    offset: int

    def to_datum(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.topic),
                int32(self.partition),
                long(self.offset),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "FactPosition":
        return cls(
            topic=d["topic"],
            partition=d["partition"],
            offset=d["offset"],
        )

    @classmethod
    def read(cls, r: Reader) -> "FactPosition":
        return cls(
            topic=r.text(),
            partition=r.int32(),
            offset=r.long(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One call in a plan: found again in the facts by position and digest."""

    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    position: FactPosition
    digest: str
    """StepRecord.digest"""
    trained: bool
    """False: its response is context only."""
    advantage: float | None = None
    """Of this response; null: the trajectory's."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "call_id": self.call_id,
            "position": self.position.to_datum(),
            "digest": self.digest,
            "trained": self.trained,
            "advantage": self.advantage,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.call_id),
                self.position.binary(),
                text(self.digest),
                boolean(self.trained),
                NULL if self.advantage is None else b"\x02" + double(self.advantage),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "PlannedStep":
        return cls(
            call_id=d["call_id"],
            position=FactPosition.from_datum(d["position"]),
            digest=d["digest"],
            trained=d["trained"],
            advantage=d["advantage"],
        )

    @classmethod
    def read(cls, r: Reader) -> "PlannedStep":
        return cls(
            call_id=r.text(),
            position=FactPosition.read(r),
            digest=r.text(),
            trained=r.boolean(),
            advantage=r.double() if r.branch() else None,
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrajectory:
    """Everything mutable about a trajectory, frozen when the batch was assembled."""

    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    reward: float
    """The return used."""
    advantage: float
    min_version: int | None = None
    max_version: int | None = None
    steps: tuple[PlannedStep, ...]
    """In training order."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "reward": self.reward,
            "advantage": self.advantage,
            "min_version": self.min_version,
            "max_version": self.max_version,
            "steps": [x.to_datum() for x in self.steps],
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.group_id),
                text(self.trajectory_id),
                double(self.reward),
                double(self.advantage),
                NULL if self.min_version is None else b"\x02" + long(self.min_version),
                NULL if self.max_version is None else b"\x02" + long(self.max_version),
                array([x.binary() for x in self.steps]),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "PlannedTrajectory":
        return cls(
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            reward=d["reward"],
            advantage=d["advantage"],
            min_version=d["min_version"],
            max_version=d["max_version"],
            steps=tuple([PlannedStep.from_datum(x) for x in d["steps"]]),
        )

    @classmethod
    def read(cls, r: Reader) -> "PlannedTrajectory":
        return cls(
            group_id=r.text(),
            trajectory_id=r.text(),
            reward=r.double(),
            advantage=r.double(),
            min_version=r.long() if r.branch() else None,
            max_version=r.long() if r.branch() else None,
            steps=r.array(PlannedStep.read),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAssembled:
    """The plan of one batch. Replaying it reads facts, never the pool."""

    envelope: Envelope
    run_id: str
    sequence: int
    """From 0, without gaps within a run."""
    version: int
    """Policy version that the batch is trained on."""
    spec: str
    """JSON of the batch spec."""
    trajectories: tuple[PlannedTrajectory, ...]
    seed: int
    """Of everything random in the step."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "run_id": self.run_id,
            "sequence": self.sequence,
            "version": self.version,
            "spec": self.spec,
            "trajectories": [x.to_datum() for x in self.trajectories],
            "seed": self.seed,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.run_id),
                long(self.sequence),
                long(self.version),
                text(self.spec),
                array([x.binary() for x in self.trajectories]),
                long(self.seed),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "BatchAssembled":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            run_id=d["run_id"],
            sequence=d["sequence"],
            version=d["version"],
            spec=d["spec"],
            trajectories=tuple([PlannedTrajectory.from_datum(x) for x in d["trajectories"]]),
            seed=d["seed"],
        )

    @classmethod
    def read(cls, r: Reader) -> "BatchAssembled":
        return cls(
            envelope=Envelope.read(r),
            run_id=r.text(),
            sequence=r.long(),
            version=r.long(),
            spec=r.text(),
            trajectories=r.array(PlannedTrajectory.read),
            seed=r.long(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSkipped:
    """Groups that this run will never train; their admission capacity returns."""

    envelope: Envelope
    run_id: str
    group_ids: tuple[str, ...]
    reason: str

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "run_id": self.run_id,
            "group_ids": self.group_ids,
            "reason": self.reason,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.run_id),
                array([text(x) for x in self.group_ids]),
                text(self.reason),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "BatchSkipped":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            run_id=d["run_id"],
            group_ids=tuple(d["group_ids"]),
            reason=d["reason"],
        )

    @classmethod
    def read(cls, r: Reader) -> "BatchSkipped":
        return cls(
            envelope=Envelope.read(r),
            run_id=r.text(),
            group_ids=r.array(Reader.text),
            reason=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTrained:
    """The optimizer step of a batch is in the checkpoint and in the published weights."""

    envelope: Envelope
    run_id: str
    sequence: int
    version: int
    """The version that the step made."""
    metrics: Mapping[str, float]
    checkpoint_uri: str = ""

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "run_id": self.run_id,
            "sequence": self.sequence,
            "version": self.version,
            "metrics": self.metrics,
            "checkpoint_uri": self.checkpoint_uri,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.run_id),
                long(self.sequence),
                long(self.version),
                mapping(self.metrics, double),
                text(self.checkpoint_uri),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "BatchTrained":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            run_id=d["run_id"],
            sequence=d["sequence"],
            version=d["version"],
            metrics=d["metrics"],
            checkpoint_uri=d["checkpoint_uri"],
        )

    @classmethod
    def read(cls, r: Reader) -> "BatchTrained":
        return cls(
            envelope=Envelope.read(r),
            run_id=r.text(),
            sequence=r.long(),
            version=r.long(),
            metrics=r.mapping(Reader.double),
            checkpoint_uri=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """Bytes too large for an event, stored beside the log before the event was written."""

    uri: str
    sha256: str
    """hex"""
    size: int
    """bytes"""

    def to_datum(self) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "sha256": self.sha256,
            "size": self.size,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.uri),
                text(self.sha256),
                long(self.size),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "BlobRef":
        return cls(
            uri=d["uri"],
            sha256=d["sha256"],
            size=d["size"],
        )

    @classmethod
    def read(cls, r: Reader) -> "BlobRef":
        return cls(
            uri=r.text(),
            sha256=r.text(),
            size=r.long(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A byte string as a change against an earlier one: the first `keep` units of the base, then `suffix`. Units are token ids for prompts and bytes for bodies. Without a base the suffix is everything."""

    base_call_id: str | None = None
    """A call of the same trajectory that was acknowledged before; its prompt + response (or body) is the base."""
    keep: int = 0
    """Units taken from the front of the base."""
    suffix: bytes
    """The rest. Token ids are little-endian int32."""
    full_length: int
    """Units of the whole."""
    full_digest: str
    """sha256 hex of the bytes of the whole."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "base_call_id": self.base_call_id,
            "keep": self.keep,
            "suffix": self.suffix,
            "full_length": self.full_length,
            "full_digest": self.full_digest,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                NULL if self.base_call_id is None else b"\x02" + text(self.base_call_id),
                int32(self.keep),
                data(self.suffix),
                int32(self.full_length),
                text(self.full_digest),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "Edge":
        return cls(
            base_call_id=d["base_call_id"],
            keep=d["keep"],
            suffix=d["suffix"],
            full_length=d["full_length"],
            full_digest=d["full_digest"],
        )

    @classmethod
    def read(cls, r: Reader) -> "Edge":
        return cls(
            base_call_id=r.text() if r.branch() else None,
            keep=r.int32(),
            suffix=r.bytes(),
            full_length=r.int32(),
            full_digest=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpan:
    """Response tokens [start, end) were sampled by this policy version."""

    run_id: str
    """Run whose trainer made the version; `base` before any run."""
    version: int
    start: int
    """First token, inclusive, counted in response tokens."""
    end: int
    """Last token, exclusive."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "version": self.version,
            "start": self.start,
            "end": self.end,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.run_id),
                long(self.version),
                int32(self.start),
                int32(self.end),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "VersionSpan":
        return cls(
            run_id=d["run_id"],
            version=d["version"],
            start=d["start"],
            end=d["end"],
        )

    @classmethod
    def read(cls, r: Reader) -> "VersionSpan":
        return cls(
            run_id=r.text(),
            version=r.long(),
            start=r.int32(),
            end=r.int32(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The effective sampling parameters: what the engine used, defaults filled in."""

    temperature: float
    top_p: float
    top_k: int
    """0 is off."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None
    seed: int | None = None
    n: int = 1
    """Choices asked for."""
    stop: tuple[str, ...] = ()
    """Stop strings."""
    constrained: bool = False
    """A grammar, a forced tool, a logit bias or a token ban shaped the distribution."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            "n": self.n,
            "stop": self.stop,
            "constrained": self.constrained,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                double(self.temperature),
                double(self.top_p),
                int32(self.top_k),
                double(self.min_p),
                double(self.presence_penalty),
                double(self.frequency_penalty),
                double(self.repetition_penalty),
                NULL if self.max_tokens is None else b"\x02" + int32(self.max_tokens),
                NULL if self.seed is None else b"\x02" + long(self.seed),
                int32(self.n),
                array([text(x) for x in self.stop]),
                boolean(self.constrained),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "Sampling":
        return cls(
            temperature=d["temperature"],
            top_p=d["top_p"],
            top_k=d["top_k"],
            min_p=d["min_p"],
            presence_penalty=d["presence_penalty"],
            frequency_penalty=d["frequency_penalty"],
            repetition_penalty=d["repetition_penalty"],
            max_tokens=d["max_tokens"],
            seed=d["seed"],
            n=d["n"],
            stop=tuple(d["stop"]),
            constrained=d["constrained"],
        )

    @classmethod
    def read(cls, r: Reader) -> "Sampling":
        return cls(
            temperature=r.double(),
            top_p=r.double(),
            top_k=r.int32(),
            min_p=r.double(),
            presence_penalty=r.double(),
            frequency_penalty=r.double(),
            repetition_penalty=r.double(),
            max_tokens=r.int32() if r.branch() else None,
            seed=r.long() if r.branch() else None,
            n=r.int32(),
            stop=r.array(Reader.text),
            constrained=r.boolean(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts as the engine reported them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    """Prompt tokens served from the prefix cache."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                int32(self.prompt_tokens),
                int32(self.completion_tokens),
                NULL if self.cached_tokens is None else b"\x02" + int32(self.cached_tokens),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "Usage":
        return cls(
            prompt_tokens=d["prompt_tokens"],
            completion_tokens=d["completion_tokens"],
            cached_tokens=d["cached_tokens"],
        )

    @classmethod
    def read(cls, r: Reader) -> "Usage":
        return cls(
            prompt_tokens=r.int32(),
            completion_tokens=r.int32(),
            cached_tokens=r.int32() if r.branch() else None,
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """UTC microseconds on the gateway's clock."""

    received_us: int
    dispatched_us: int
    first_token_us: int | None = None
    done_us: int

    def to_datum(self) -> dict[str, Any]:
        return {
            "received_us": self.received_us,
            "dispatched_us": self.dispatched_us,
            "first_token_us": self.first_token_us,
            "done_us": self.done_us,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                long(self.received_us),
                long(self.dispatched_us),
                NULL if self.first_token_us is None else b"\x02" + long(self.first_token_us),
                long(self.done_us),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "Timings":
        return cls(
            received_us=d["received_us"],
            dispatched_us=d["dispatched_us"],
            first_token_us=d["first_token_us"],
            done_us=d["done_us"],
        )

    @classmethod
    def read(cls, r: Reader) -> "Timings":
        return cls(
            received_us=r.long(),
            dispatched_us=r.long(),
            first_token_us=r.long() if r.branch() else None,
            done_us=r.long(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Integrity:
    """Whether everything that training needs was captured."""

    complete: bool
    missing: tuple[str, ...] = ()
    """Names of what is absent or contradictory, for example token_ids, logprobs, spans, version_unknown."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "complete": self.complete,
            "missing": self.missing,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                boolean(self.complete),
                array([text(x) for x in self.missing]),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "Integrity":
        return cls(
            complete=d["complete"],
            missing=tuple(d["missing"]),
        )

    @classmethod
    def read(cls, r: Reader) -> "Integrity":
        return cls(
            complete=r.boolean(),
            missing=r.array(Reader.text),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class CallCaptured:
    """One model call, exactly as it went through the gateway. Written before the client has the end of its reply."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    attempt: int = 0
    """Retries of the same call count up from 0."""
    choice: int = 0
    """Index of the choice within the reply."""
    prompt: Edge
    """Token ids of the prompt as the engine rendered them."""
    base_digest: str = ""
    """`StepRecord.digest` of the call that the prompt is written against, as it was then; empty where it is written in full."""
    response_ids: bytes
    """Sampled ids, little-endian int32, never re-tokenised; includes the end token when it was sampled."""
    response_logprobs: bytes
    """Log-probability of each sampled id under the behaviour policy (after temperature), little-endian float32."""
    spans: tuple[VersionSpan, ...]
    """Tile [0, len(response_ids)); empty when unknown."""
    sampling: Sampling
    finish_reason: str | None = None
    request: Edge
    """Body of the request as the client sent it (JSON), secrets are never in it."""
    request_blob: BlobRef | None = None
    response_body: bytes
    """Body of the reply as the client saw it (JSON)."""
    response_blob: BlobRef | None = None
    model_id: str
    """The model as the project knows it: the scope of versions."""
    worker_id: str | None = None
    upstream: str
    """URL of the server that answered, without credentials."""
    agent: str | None = None
    channel: str = "train"
    """train, val, or a channel of the operator's."""
    tags: tuple[str, ...] = ()
    status: CallStatus
    http_status: int
    idempotency_key: str | None = None
    usage: Usage
    timings: Timings
    integrity: Integrity

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "call_id": self.call_id,
            "attempt": self.attempt,
            "choice": self.choice,
            "prompt": self.prompt.to_datum(),
            "base_digest": self.base_digest,
            "response_ids": self.response_ids,
            "response_logprobs": self.response_logprobs,
            "spans": [x.to_datum() for x in self.spans],
            "sampling": self.sampling.to_datum(),
            "finish_reason": self.finish_reason,
            "request": self.request.to_datum(),
            "request_blob": None if self.request_blob is None else self.request_blob.to_datum(),
            "response_body": self.response_body,
            "response_blob": None if self.response_blob is None else self.response_blob.to_datum(),
            "model_id": self.model_id,
            "worker_id": self.worker_id,
            "upstream": self.upstream,
            "agent": self.agent,
            "channel": self.channel,
            "tags": self.tags,
            "status": self.status,
            "http_status": self.http_status,
            "idempotency_key": self.idempotency_key,
            "usage": self.usage.to_datum(),
            "timings": self.timings.to_datum(),
            "integrity": self.integrity.to_datum(),
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.group_id),
                text(self.trajectory_id),
                text(self.call_id),
                int32(self.attempt),
                int32(self.choice),
                self.prompt.binary(),
                text(self.base_digest),
                data(self.response_ids),
                data(self.response_logprobs),
                array([x.binary() for x in self.spans]),
                again(self.sampling),
                NULL if self.finish_reason is None else b"\x02" + text(self.finish_reason),
                self.request.binary(),
                NULL if self.request_blob is None else b"\x02" + self.request_blob.binary(),
                data(self.response_body),
                NULL if self.response_blob is None else b"\x02" + self.response_blob.binary(),
                text(self.model_id),
                NULL if self.worker_id is None else b"\x02" + text(self.worker_id),
                text(self.upstream),
                NULL if self.agent is None else b"\x02" + text(self.agent),
                text(self.channel),
                array([text(x) for x in self.tags]),
                _CALLSTATUS[self.status],
                int32(self.http_status),
                NULL if self.idempotency_key is None else b"\x02" + text(self.idempotency_key),
                self.usage.binary(),
                self.timings.binary(),
                again(self.integrity),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "CallCaptured":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            call_id=d["call_id"],
            attempt=d["attempt"],
            choice=d["choice"],
            prompt=Edge.from_datum(d["prompt"]),
            base_digest=d["base_digest"],
            response_ids=d["response_ids"],
            response_logprobs=d["response_logprobs"],
            spans=tuple([VersionSpan.from_datum(x) for x in d["spans"]]),
            sampling=Sampling.from_datum(d["sampling"]),
            finish_reason=d["finish_reason"],
            request=Edge.from_datum(d["request"]),
            request_blob=None if d["request_blob"] is None else BlobRef.from_datum(d["request_blob"]),
            response_body=d["response_body"],
            response_blob=None if d["response_blob"] is None else BlobRef.from_datum(d["response_blob"]),
            model_id=d["model_id"],
            worker_id=d["worker_id"],
            upstream=d["upstream"],
            agent=d["agent"],
            channel=d["channel"],
            tags=tuple(d["tags"]),
            status=d["status"],
            http_status=d["http_status"],
            idempotency_key=d["idempotency_key"],
            usage=Usage.from_datum(d["usage"]),
            timings=Timings.from_datum(d["timings"]),
            integrity=Integrity.from_datum(d["integrity"]),
        )

    @classmethod
    def read(cls, r: Reader) -> "CallCaptured":
        return cls(
            envelope=Envelope.read(r),
            group_id=r.text(),
            trajectory_id=r.text(),
            call_id=r.text(),
            attempt=r.int32(),
            choice=r.int32(),
            prompt=Edge.read(r),
            base_digest=r.text(),
            response_ids=r.bytes(),
            response_logprobs=r.bytes(),
            spans=r.array(VersionSpan.read),
            sampling=r.again(Sampling),
            finish_reason=r.text() if r.branch() else None,
            request=Edge.read(r),
            request_blob=BlobRef.read(r) if r.branch() else None,
            response_body=r.bytes(),
            response_blob=BlobRef.read(r) if r.branch() else None,
            model_id=r.text(),
            worker_id=r.text() if r.branch() else None,
            upstream=r.text(),
            agent=r.text() if r.branch() else None,
            channel=r.text(),
            tags=r.array(Reader.text),
            status=_CALLSTATUS_SYMBOLS[r.length()],
            http_status=r.int32(),
            idempotency_key=r.text() if r.branch() else None,
            usage=Usage.read(r),
            timings=Timings.read(r),
            integrity=r.again(Integrity),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed:
    """A call that produced no tokens: refused, timed out or broken upstream."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    attempt: int = 0
    """Retries of the same call count up from 0."""
    http_status: int
    reason: str
    """A short stable word."""
    message: str = ""
    model_id: str = ""
    worker_id: str | None = None
    upstream: str = ""
    agent: str | None = None
    channel: str = "train"
    timings: Timings

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "call_id": self.call_id,
            "attempt": self.attempt,
            "http_status": self.http_status,
            "reason": self.reason,
            "message": self.message,
            "model_id": self.model_id,
            "worker_id": self.worker_id,
            "upstream": self.upstream,
            "agent": self.agent,
            "channel": self.channel,
            "timings": self.timings.to_datum(),
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.group_id),
                text(self.trajectory_id),
                text(self.call_id),
                int32(self.attempt),
                int32(self.http_status),
                text(self.reason),
                text(self.message),
                text(self.model_id),
                NULL if self.worker_id is None else b"\x02" + text(self.worker_id),
                text(self.upstream),
                NULL if self.agent is None else b"\x02" + text(self.agent),
                text(self.channel),
                self.timings.binary(),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "CallFailed":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            call_id=d["call_id"],
            attempt=d["attempt"],
            http_status=d["http_status"],
            reason=d["reason"],
            message=d["message"],
            model_id=d["model_id"],
            worker_id=d["worker_id"],
            upstream=d["upstream"],
            agent=d["agent"],
            channel=d["channel"],
            timings=Timings.from_datum(d["timings"]),
        )

    @classmethod
    def read(cls, r: Reader) -> "CallFailed":
        return cls(
            envelope=Envelope.read(r),
            group_id=r.text(),
            trajectory_id=r.text(),
            call_id=r.text(),
            attempt=r.int32(),
            http_status=r.int32(),
            reason=r.text(),
            message=r.text(),
            model_id=r.text(),
            worker_id=r.text() if r.branch() else None,
            upstream=r.text(),
            agent=r.text() if r.branch() else None,
            channel=r.text(),
            timings=Timings.read(r),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One StepCurated as a step's record keeps it, whether it counts or not."""

    event_id: str
    revision: int = 0
    who: str
    trainable: bool | None = None
    quality: float | None = None
    tags: tuple[str, ...] | None = None
    note: str | None = None
    undoes: tuple[str, ...] = ()
    """Event ids of judgements that it took back."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """By scorer, sorted."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "event_id": self.event_id,
            "revision": self.revision,
            "who": self.who,
            "trainable": self.trainable,
            "quality": self.quality,
            "tags": None if self.tags is None else list(self.tags),
            "note": self.note,
            "undoes": self.undoes,
            "scores": self.scores,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.event_id),
                long(self.revision),
                text(self.who),
                NULL if self.trainable is None else b"\x02" + boolean(self.trainable),
                NULL if self.quality is None else b"\x02" + double(self.quality),
                NULL if self.tags is None else b"\x02" + array([text(x) for x in self.tags]),
                NULL if self.note is None else b"\x02" + text(self.note),
                array([text(x) for x in self.undoes]),
                mapping(self.scores, maybe_double),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "Judgement":
        return cls(
            event_id=d["event_id"],
            revision=d["revision"],
            who=d["who"],
            trainable=d["trainable"],
            quality=d["quality"],
            tags=None if d["tags"] is None else tuple(d["tags"]),
            note=d["note"],
            undoes=tuple(d["undoes"]),
            scores=d["scores"],
        )

    @classmethod
    def read(cls, r: Reader) -> "Judgement":
        return cls(
            event_id=r.text(),
            revision=r.long(),
            who=r.text(),
            trainable=r.boolean() if r.branch() else None,
            quality=r.double() if r.branch() else None,
            tags=r.array(Reader.text) if r.branch() else None,
            note=r.text() if r.branch() else None,
            undoes=r.array(Reader.text),
            scores=r.mapping(Reader.maybe_double),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Curation:
    """What counts of the judgements of a step, field by field, and all of them."""

    trainable: bool | None = None
    quality: float | None = None
    tags: tuple[str, ...] = ()
    note: str | None = None
    who: str = ""
    """Whose is the highest judgement that counts."""
    judgements: tuple[Judgement, ...] = ()
    """All of them, those taken back too, sorted by (revision, event_id)."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """By scorer, sorted: of each the highest judgement that counts."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "trainable": self.trainable,
            "quality": self.quality,
            "tags": self.tags,
            "note": self.note,
            "who": self.who,
            "judgements": [x.to_datum() for x in self.judgements],
            "scores": self.scores,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                NULL if self.trainable is None else b"\x02" + boolean(self.trainable),
                NULL if self.quality is None else b"\x02" + double(self.quality),
                array([text(x) for x in self.tags]),
                NULL if self.note is None else b"\x02" + text(self.note),
                text(self.who),
                array([x.binary() for x in self.judgements]),
                mapping(self.scores, maybe_double),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "Curation":
        return cls(
            trainable=d["trainable"],
            quality=d["quality"],
            tags=tuple(d["tags"]),
            note=d["note"],
            who=d["who"],
            judgements=tuple([Judgement.from_datum(x) for x in d["judgements"]]),
            scores=d["scores"],
        )

    @classmethod
    def read(cls, r: Reader) -> "Curation":
        return cls(
            trainable=r.boolean() if r.branch() else None,
            quality=r.double() if r.branch() else None,
            tags=r.array(Reader.text),
            note=r.text() if r.branch() else None,
            who=r.text(),
            judgements=r.array(Judgement.read),
            scores=r.mapping(Reader.maybe_double),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClosed:
    """A reactor closed a group at its deadline: the members are those listed."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    members: tuple[str, ...]
    """trajectory_ids, sorted"""
    reason: str
    last_progress_event_id: str

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "group_id": self.group_id,
            "members": self.members,
            "reason": self.reason,
            "last_progress_event_id": self.last_progress_event_id,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.group_id),
                array([text(x) for x in self.members]),
                text(self.reason),
                text(self.last_progress_event_id),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "GroupClosed":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            group_id=d["group_id"],
            members=tuple(d["members"]),
            reason=d["reason"],
            last_progress_event_id=d["last_progress_event_id"],
        )

    @classmethod
    def read(cls, r: Reader) -> "GroupClosed":
        return cls(
            envelope=Envelope.read(r),
            group_id=r.text(),
            members=r.array(Reader.text),
            reason=r.text(),
            last_progress_event_id=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A trajectory as its group sees it."""

    trajectory_id: str
    status: TrajectoryStatus
    ready: bool
    return_total: float | None = None
    min_version: int | None = None
    max_version: int | None = None
    digest: str

    def to_datum(self) -> dict[str, Any]:
        return {
            "trajectory_id": self.trajectory_id,
            "status": self.status,
            "ready": self.ready,
            "return_total": self.return_total,
            "min_version": self.min_version,
            "max_version": self.max_version,
            "digest": self.digest,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.trajectory_id),
                _TRAJECTORYSTATUS[self.status],
                boolean(self.ready),
                NULL if self.return_total is None else b"\x02" + double(self.return_total),
                NULL if self.min_version is None else b"\x02" + long(self.min_version),
                NULL if self.max_version is None else b"\x02" + long(self.max_version),
                text(self.digest),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "GroupMember":
        return cls(
            trajectory_id=d["trajectory_id"],
            status=d["status"],
            ready=d["ready"],
            return_total=d["return_total"],
            min_version=d["min_version"],
            max_version=d["max_version"],
            digest=d["digest"],
        )

    @classmethod
    def read(cls, r: Reader) -> "GroupMember":
        return cls(
            trajectory_id=r.text(),
            status=_TRAJECTORYSTATUS_SYMBOLS[r.length()],
            ready=r.boolean(),
            return_total=r.double() if r.branch() else None,
            min_version=r.long() if r.branch() else None,
            max_version=r.long() if r.branch() else None,
            digest=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOpened:
    """A group was declared: what it is for and how many members it expects."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    expected_size: int | None = None
    """Trajectories; undeclared: the batch spec decides."""
    channel: str = "train"
    task: str | None = None
    """JSON of what the agent was asked to do."""
    deadline_us: int | None = None
    """UTC microseconds; after it the reactor closes the group with the members that are complete."""
    agent: str | None = None
    tags: tuple[str, ...] = ()

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "group_id": self.group_id,
            "expected_size": self.expected_size,
            "channel": self.channel,
            "task": self.task,
            "deadline_us": self.deadline_us,
            "agent": self.agent,
            "tags": self.tags,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.group_id),
                NULL if self.expected_size is None else b"\x02" + int32(self.expected_size),
                text(self.channel),
                NULL if self.task is None else b"\x02" + text(self.task),
                NULL if self.deadline_us is None else b"\x02" + long(self.deadline_us),
                NULL if self.agent is None else b"\x02" + text(self.agent),
                array([text(x) for x in self.tags]),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "GroupOpened":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            group_id=d["group_id"],
            expected_size=d["expected_size"],
            channel=d["channel"],
            task=d["task"],
            deadline_us=d["deadline_us"],
            agent=d["agent"],
            tags=tuple(d["tags"]),
        )

    @classmethod
    def read(cls, r: Reader) -> "GroupOpened":
        return cls(
            envelope=Envelope.read(r),
            group_id=r.text(),
            expected_size=r.int32() if r.branch() else None,
            channel=r.text(),
            task=r.text() if r.branch() else None,
            deadline_us=r.long() if r.branch() else None,
            agent=r.text() if r.branch() else None,
            tags=r.array(Reader.text),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group as data. Key: group_id."""

    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    declared: bool
    declared_event_id: str = ""
    expected_size: int | None = None
    channel: str = ""
    """val wins when members disagree."""
    task: str | None = None
    """JSON"""
    deadline_us: int | None = None
    agent: str | None = None
    tags: tuple[str, ...] = ()
    run_id: str | None = None
    members: tuple[GroupMember, ...] = ()
    """Sorted by trajectory_id; exactly the listed ones once closed."""
    closed: bool = False
    closed_event_id: str = ""
    closed_members: tuple[str, ...] = ()
    ready: bool
    reasons: tuple[str, ...] = ()
    """Why it is not ready, sorted."""
    reward_mean: float | None = None
    reward_std: float | None = None
    """Sample standard deviation (ddof 1)."""
    zero_variance: bool = False
    min_version: int | None = None
    max_version: int | None = None
    last_progress_event_id: str = ""
    last_progress_us: int = 0
    digest: str = ""
    """sha256 hex over its members' digests."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "declared": self.declared,
            "declared_event_id": self.declared_event_id,
            "expected_size": self.expected_size,
            "channel": self.channel,
            "task": self.task,
            "deadline_us": self.deadline_us,
            "agent": self.agent,
            "tags": self.tags,
            "run_id": self.run_id,
            "members": [x.to_datum() for x in self.members],
            "closed": self.closed,
            "closed_event_id": self.closed_event_id,
            "closed_members": self.closed_members,
            "ready": self.ready,
            "reasons": self.reasons,
            "reward_mean": self.reward_mean,
            "reward_std": self.reward_std,
            "zero_variance": self.zero_variance,
            "min_version": self.min_version,
            "max_version": self.max_version,
            "last_progress_event_id": self.last_progress_event_id,
            "last_progress_us": self.last_progress_us,
            "digest": self.digest,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.group_id),
                boolean(self.declared),
                text(self.declared_event_id),
                NULL if self.expected_size is None else b"\x02" + int32(self.expected_size),
                text(self.channel),
                NULL if self.task is None else b"\x02" + text(self.task),
                NULL if self.deadline_us is None else b"\x02" + long(self.deadline_us),
                NULL if self.agent is None else b"\x02" + text(self.agent),
                array([text(x) for x in self.tags]),
                NULL if self.run_id is None else b"\x02" + text(self.run_id),
                array([x.binary() for x in self.members]),
                boolean(self.closed),
                text(self.closed_event_id),
                array([text(x) for x in self.closed_members]),
                boolean(self.ready),
                array([text(x) for x in self.reasons]),
                NULL if self.reward_mean is None else b"\x02" + double(self.reward_mean),
                NULL if self.reward_std is None else b"\x02" + double(self.reward_std),
                boolean(self.zero_variance),
                NULL if self.min_version is None else b"\x02" + long(self.min_version),
                NULL if self.max_version is None else b"\x02" + long(self.max_version),
                text(self.last_progress_event_id),
                long(self.last_progress_us),
                text(self.digest),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "GroupRecord":
        return cls(
            group_id=d["group_id"],
            declared=d["declared"],
            declared_event_id=d["declared_event_id"],
            expected_size=d["expected_size"],
            channel=d["channel"],
            task=d["task"],
            deadline_us=d["deadline_us"],
            agent=d["agent"],
            tags=tuple(d["tags"]),
            run_id=d["run_id"],
            members=tuple([GroupMember.from_datum(x) for x in d["members"]]),
            closed=d["closed"],
            closed_event_id=d["closed_event_id"],
            closed_members=tuple(d["closed_members"]),
            ready=d["ready"],
            reasons=tuple(d["reasons"]),
            reward_mean=d["reward_mean"],
            reward_std=d["reward_std"],
            zero_variance=d["zero_variance"],
            min_version=d["min_version"],
            max_version=d["max_version"],
            last_progress_event_id=d["last_progress_event_id"],
            last_progress_us=d["last_progress_us"],
            digest=d["digest"],
        )

    @classmethod
    def read(cls, r: Reader) -> "GroupRecord":
        return cls(
            group_id=r.text(),
            declared=r.boolean(),
            declared_event_id=r.text(),
            expected_size=r.int32() if r.branch() else None,
            channel=r.text(),
            task=r.text() if r.branch() else None,
            deadline_us=r.long() if r.branch() else None,
            agent=r.text() if r.branch() else None,
            tags=r.array(Reader.text),
            run_id=r.text() if r.branch() else None,
            members=r.array(GroupMember.read),
            closed=r.boolean(),
            closed_event_id=r.text(),
            closed_members=r.array(Reader.text),
            ready=r.boolean(),
            reasons=r.array(Reader.text),
            reward_mean=r.double() if r.branch() else None,
            reward_std=r.double() if r.branch() else None,
            zero_variance=r.boolean(),
            min_version=r.long() if r.branch() else None,
            max_version=r.long() if r.branch() else None,
            last_progress_event_id=r.text(),
            last_progress_us=r.long(),
            digest=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class RewardAssigned:
    """A reward for a call, for a step by its index, or (neither given) for the trajectory. Slot = (subject, source, name); the highest (revision, event_id) wins."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str | None = None
    step_index: int | None = None
    """Counted from 0 over the trajectory's calls."""
    source: str = "agent"
    """Who judged."""
    name: str = "outcome"
    """Which component."""
    value: float
    revision: int = 0
    metadata: str | None = None
    """JSON"""

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "call_id": self.call_id,
            "step_index": self.step_index,
            "source": self.source,
            "name": self.name,
            "value": self.value,
            "revision": self.revision,
            "metadata": self.metadata,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.group_id),
                text(self.trajectory_id),
                NULL if self.call_id is None else b"\x02" + text(self.call_id),
                NULL if self.step_index is None else b"\x02" + int32(self.step_index),
                text(self.source),
                text(self.name),
                double(self.value),
                long(self.revision),
                NULL if self.metadata is None else b"\x02" + text(self.metadata),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "RewardAssigned":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            call_id=d["call_id"],
            step_index=d["step_index"],
            source=d["source"],
            name=d["name"],
            value=d["value"],
            revision=d["revision"],
            metadata=d["metadata"],
        )

    @classmethod
    def read(cls, r: Reader) -> "RewardAssigned":
        return cls(
            envelope=Envelope.read(r),
            group_id=r.text(),
            trajectory_id=r.text(),
            call_id=r.text() if r.branch() else None,
            step_index=r.int32() if r.branch() else None,
            source=r.text(),
            name=r.text(),
            value=r.double(),
            revision=r.long(),
            metadata=r.text() if r.branch() else None,
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSlot:
    """The winning reward of one slot."""

    call_id: str | None = None
    step_index: int | None = None
    source: str
    name: str
    value: float
    revision: int
    event_id: str

    def to_datum(self) -> dict[str, Any]:
        return {
            "call_id": self.call_id,
            "step_index": self.step_index,
            "source": self.source,
            "name": self.name,
            "value": self.value,
            "revision": self.revision,
            "event_id": self.event_id,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                NULL if self.call_id is None else b"\x02" + text(self.call_id),
                NULL if self.step_index is None else b"\x02" + int32(self.step_index),
                text(self.source),
                text(self.name),
                double(self.value),
                long(self.revision),
                text(self.event_id),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "RewardSlot":
        return cls(
            call_id=d["call_id"],
            step_index=d["step_index"],
            source=d["source"],
            name=d["name"],
            value=d["value"],
            revision=d["revision"],
            event_id=d["event_id"],
        )

    @classmethod
    def read(cls, r: Reader) -> "RewardSlot":
        return cls(
            call_id=r.text() if r.branch() else None,
            step_index=r.int32() if r.branch() else None,
            source=r.text(),
            name=r.text(),
            value=r.double(),
            revision=r.long(),
            event_id=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The run is over."""

    envelope: Envelope
    run_id: str
    status: RunStatus
    reason: str = ""
    batches: int
    version: int

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "run_id": self.run_id,
            "status": self.status,
            "reason": self.reason,
            "batches": self.batches,
            "version": self.version,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.run_id),
                _RUNSTATUS[self.status],
                text(self.reason),
                long(self.batches),
                long(self.version),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "RunEnded":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            run_id=d["run_id"],
            status=d["status"],
            reason=d["reason"],
            batches=d["batches"],
            version=d["version"],
        )

    @classmethod
    def read(cls, r: Reader) -> "RunEnded":
        return cls(
            envelope=Envelope.read(r),
            run_id=r.text(),
            status=_RUNSTATUS_SYMBOLS[r.length()],
            reason=r.text(),
            batches=r.long(),
            version=r.long(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A training run began (or was resumed: same run_id, next incarnation)."""

    envelope: Envelope
    run_id: str
    model_id: str
    incarnation: int
    config: str
    """JSON of the whole configuration."""
    group_size: int
    groups_per_batch: int
    staleness_max: int
    """versions"""
    facts_prefix: str
    """Topic prefix whose facts the plans refer to."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "run_id": self.run_id,
            "model_id": self.model_id,
            "incarnation": self.incarnation,
            "config": self.config,
            "group_size": self.group_size,
            "groups_per_batch": self.groups_per_batch,
            "staleness_max": self.staleness_max,
            "facts_prefix": self.facts_prefix,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.run_id),
                text(self.model_id),
                int32(self.incarnation),
                text(self.config),
                int32(self.group_size),
                int32(self.groups_per_batch),
                int32(self.staleness_max),
                text(self.facts_prefix),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "RunStarted":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            run_id=d["run_id"],
            model_id=d["model_id"],
            incarnation=d["incarnation"],
            config=d["config"],
            group_size=d["group_size"],
            groups_per_batch=d["groups_per_batch"],
            staleness_max=d["staleness_max"],
            facts_prefix=d["facts_prefix"],
        )

    @classmethod
    def read(cls, r: Reader) -> "RunStarted":
        return cls(
            envelope=Envelope.read(r),
            run_id=r.text(),
            model_id=r.text(),
            incarnation=r.int32(),
            config=r.text(),
            group_size=r.int32(),
            groups_per_batch=r.int32(),
            staleness_max=r.int32(),
            facts_prefix=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class StepCurated:
    """A person or a tool judged a step, or took judgements back. Fields that are null leave the earlier judgement; per field the highest (revision, event_id) wins among those that nobody took back."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    trainable: bool | None = None
    quality: float | None = None
    tags: tuple[str, ...] | None = None
    note: str | None = None
    who: str
    revision: int = 0
    undoes: tuple[str, ...] = ()
    """Event ids of judgements of this step, below this one in (revision, event_id), that count no more: as if nobody had ever given them. Of an undo: what it took back counts again."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """Scorer (`name@version`) -> 0 (bad) to 1 (good); null: it looked and has nothing to say. Per scorer the highest (revision, event_id) counts."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "call_id": self.call_id,
            "trainable": self.trainable,
            "quality": self.quality,
            "tags": None if self.tags is None else list(self.tags),
            "note": self.note,
            "who": self.who,
            "revision": self.revision,
            "undoes": self.undoes,
            "scores": self.scores,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.group_id),
                text(self.trajectory_id),
                text(self.call_id),
                NULL if self.trainable is None else b"\x02" + boolean(self.trainable),
                NULL if self.quality is None else b"\x02" + double(self.quality),
                NULL if self.tags is None else b"\x02" + array([text(x) for x in self.tags]),
                NULL if self.note is None else b"\x02" + text(self.note),
                text(self.who),
                long(self.revision),
                array([text(x) for x in self.undoes]),
                mapping(self.scores, maybe_double),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "StepCurated":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            call_id=d["call_id"],
            trainable=d["trainable"],
            quality=d["quality"],
            tags=None if d["tags"] is None else tuple(d["tags"]),
            note=d["note"],
            who=d["who"],
            revision=d["revision"],
            undoes=tuple(d["undoes"]),
            scores=d["scores"],
        )

    @classmethod
    def read(cls, r: Reader) -> "StepCurated":
        return cls(
            envelope=Envelope.read(r),
            group_id=r.text(),
            trajectory_id=r.text(),
            call_id=r.text(),
            trainable=r.boolean() if r.branch() else None,
            quality=r.double() if r.branch() else None,
            tags=r.array(Reader.text) if r.branch() else None,
            note=r.text() if r.branch() else None,
            who=r.text(),
            revision=r.long(),
            undoes=r.array(Reader.text),
            scores=r.mapping(Reader.maybe_double),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One model call as data: small, everything but its tokens. Key: group/trajectory/call. A record without position is one whose reward or curation came before the call."""

    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    attempt: int = 0
    """The attempt that counts: of the completed ones (else of all) the highest, whose reply the agent went on with."""
    attempts: tuple[int, ...] = ()
    """All attempts seen, sorted."""
    position: FactPosition | None = None
    """Of its CallCaptured in the facts: of the attempt that counts, at the lowest offset seen."""
    digest: str = ""
    """sha256 hex over prompt digest, response ids, logprobs and spans: what training reads."""
    prompt_id: str = ""
    """sha256 hex of the ids of the whole prompt: equal for calls that were asked the same."""
    response_id: str = ""
    """sha256 hex of the response ids."""
    prompt_length: int = 0
    """tokens"""
    response_length: int = 0
    """tokens"""
    base_call_id: str | None = None
    """The call that its prompt is written against."""
    base_keep: int = 0
    """Ids taken from the front of the base."""
    base_digest: str = ""
    """`digest` of the base as the prompt was written against it."""
    spans: tuple[VersionSpan, ...] = ()
    min_version: int | None = None
    max_version: int | None = None
    policy_run_id: str | None = None
    sampling: Sampling | None = None
    finish_reason: str | None = None
    status: CallStatus = "unknown"
    trainable: bool = False
    """Captured whole, sampled on policy, and not curated away."""
    reasons: tuple[str, ...] = ()
    """Why it is not trainable, sorted."""
    rewards: tuple[RewardSlot, ...] = ()
    """Slots whose subject is this call, sorted."""
    reward_total: float | None = None
    """Sum of the slots."""
    curation: Curation | None = None
    model_id: str = ""
    worker_id: str | None = None
    agent: str | None = None
    channel: str = ""
    task: str | None = None
    """JSON, of its trajectory."""
    tags: tuple[str, ...] = ()
    usage: Usage | None = None
    timings: Timings | None = None
    integrity: Integrity | None = None
    run_id: str | None = None

    def to_datum(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "call_id": self.call_id,
            "attempt": self.attempt,
            "attempts": self.attempts,
            "position": None if self.position is None else self.position.to_datum(),
            "digest": self.digest,
            "prompt_id": self.prompt_id,
            "response_id": self.response_id,
            "prompt_length": self.prompt_length,
            "response_length": self.response_length,
            "base_call_id": self.base_call_id,
            "base_keep": self.base_keep,
            "base_digest": self.base_digest,
            "spans": [x.to_datum() for x in self.spans],
            "min_version": self.min_version,
            "max_version": self.max_version,
            "policy_run_id": self.policy_run_id,
            "sampling": None if self.sampling is None else self.sampling.to_datum(),
            "finish_reason": self.finish_reason,
            "status": self.status,
            "trainable": self.trainable,
            "reasons": self.reasons,
            "rewards": [x.to_datum() for x in self.rewards],
            "reward_total": self.reward_total,
            "curation": None if self.curation is None else self.curation.to_datum(),
            "model_id": self.model_id,
            "worker_id": self.worker_id,
            "agent": self.agent,
            "channel": self.channel,
            "task": self.task,
            "tags": self.tags,
            "usage": None if self.usage is None else self.usage.to_datum(),
            "timings": None if self.timings is None else self.timings.to_datum(),
            "integrity": None if self.integrity is None else self.integrity.to_datum(),
            "run_id": self.run_id,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.group_id),
                text(self.trajectory_id),
                text(self.call_id),
                int32(self.attempt),
                array([int32(x) for x in self.attempts]),
                NULL if self.position is None else b"\x02" + self.position.binary(),
                text(self.digest),
                text(self.prompt_id),
                text(self.response_id),
                int32(self.prompt_length),
                int32(self.response_length),
                NULL if self.base_call_id is None else b"\x02" + text(self.base_call_id),
                int32(self.base_keep),
                text(self.base_digest),
                array([x.binary() for x in self.spans]),
                NULL if self.min_version is None else b"\x02" + long(self.min_version),
                NULL if self.max_version is None else b"\x02" + long(self.max_version),
                NULL if self.policy_run_id is None else b"\x02" + text(self.policy_run_id),
                NULL if self.sampling is None else b"\x02" + again(self.sampling),
                NULL if self.finish_reason is None else b"\x02" + text(self.finish_reason),
                _CALLSTATUS[self.status],
                boolean(self.trainable),
                array([text(x) for x in self.reasons]),
                array([x.binary() for x in self.rewards]),
                NULL if self.reward_total is None else b"\x02" + double(self.reward_total),
                NULL if self.curation is None else b"\x02" + self.curation.binary(),
                text(self.model_id),
                NULL if self.worker_id is None else b"\x02" + text(self.worker_id),
                NULL if self.agent is None else b"\x02" + text(self.agent),
                text(self.channel),
                NULL if self.task is None else b"\x02" + text(self.task),
                array([text(x) for x in self.tags]),
                NULL if self.usage is None else b"\x02" + self.usage.binary(),
                NULL if self.timings is None else b"\x02" + self.timings.binary(),
                NULL if self.integrity is None else b"\x02" + again(self.integrity),
                NULL if self.run_id is None else b"\x02" + text(self.run_id),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "StepRecord":
        return cls(
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            call_id=d["call_id"],
            attempt=d["attempt"],
            attempts=tuple(d["attempts"]),
            position=None if d["position"] is None else FactPosition.from_datum(d["position"]),
            digest=d["digest"],
            prompt_id=d["prompt_id"],
            response_id=d["response_id"],
            prompt_length=d["prompt_length"],
            response_length=d["response_length"],
            base_call_id=d["base_call_id"],
            base_keep=d["base_keep"],
            base_digest=d["base_digest"],
            spans=tuple([VersionSpan.from_datum(x) for x in d["spans"]]),
            min_version=d["min_version"],
            max_version=d["max_version"],
            policy_run_id=d["policy_run_id"],
            sampling=None if d["sampling"] is None else Sampling.from_datum(d["sampling"]),
            finish_reason=d["finish_reason"],
            status=d["status"],
            trainable=d["trainable"],
            reasons=tuple(d["reasons"]),
            rewards=tuple([RewardSlot.from_datum(x) for x in d["rewards"]]),
            reward_total=d["reward_total"],
            curation=None if d["curation"] is None else Curation.from_datum(d["curation"]),
            model_id=d["model_id"],
            worker_id=d["worker_id"],
            agent=d["agent"],
            channel=d["channel"],
            task=d["task"],
            tags=tuple(d["tags"]),
            usage=None if d["usage"] is None else Usage.from_datum(d["usage"]),
            timings=None if d["timings"] is None else Timings.from_datum(d["timings"]),
            integrity=None if d["integrity"] is None else Integrity.from_datum(d["integrity"]),
            run_id=d["run_id"],
        )

    @classmethod
    def read(cls, r: Reader) -> "StepRecord":
        return cls(
            group_id=r.text(),
            trajectory_id=r.text(),
            call_id=r.text(),
            attempt=r.int32(),
            attempts=r.array(Reader.int32),
            position=FactPosition.read(r) if r.branch() else None,
            digest=r.text(),
            prompt_id=r.text(),
            response_id=r.text(),
            prompt_length=r.int32(),
            response_length=r.int32(),
            base_call_id=r.text() if r.branch() else None,
            base_keep=r.int32(),
            base_digest=r.text(),
            spans=r.array(VersionSpan.read),
            min_version=r.long() if r.branch() else None,
            max_version=r.long() if r.branch() else None,
            policy_run_id=r.text() if r.branch() else None,
            sampling=r.again(Sampling) if r.branch() else None,
            finish_reason=r.text() if r.branch() else None,
            status=_CALLSTATUS_SYMBOLS[r.length()],
            trainable=r.boolean(),
            reasons=r.array(Reader.text),
            rewards=r.array(RewardSlot.read),
            reward_total=r.double() if r.branch() else None,
            curation=Curation.read(r) if r.branch() else None,
            model_id=r.text(),
            worker_id=r.text() if r.branch() else None,
            agent=r.text() if r.branch() else None,
            channel=r.text(),
            task=r.text() if r.branch() else None,
            tags=r.array(Reader.text),
            usage=Usage.read(r) if r.branch() else None,
            timings=Timings.read(r) if r.branch() else None,
            integrity=r.again(Integrity) if r.branch() else None,
            run_id=r.text() if r.branch() else None,
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class StepTokens:
    """The tokens of one step, copied once and opaque. Key: group/trajectory/call/tokens."""

    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str
    """One model call; choice k > 0 of a call with n > 1 is `<call_id>.<k>`."""
    attempt: int
    prompt: Edge
    response_ids: bytes
    response_logprobs: bytes
    spans: tuple[VersionSpan, ...]
    digest: str
    """As in StepRecord."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "call_id": self.call_id,
            "attempt": self.attempt,
            "prompt": self.prompt.to_datum(),
            "response_ids": self.response_ids,
            "response_logprobs": self.response_logprobs,
            "spans": [x.to_datum() for x in self.spans],
            "digest": self.digest,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.group_id),
                text(self.trajectory_id),
                text(self.call_id),
                int32(self.attempt),
                self.prompt.binary(),
                data(self.response_ids),
                data(self.response_logprobs),
                array([x.binary() for x in self.spans]),
                text(self.digest),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "StepTokens":
        return cls(
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            call_id=d["call_id"],
            attempt=d["attempt"],
            prompt=Edge.from_datum(d["prompt"]),
            response_ids=d["response_ids"],
            response_logprobs=d["response_logprobs"],
            spans=tuple([VersionSpan.from_datum(x) for x in d["spans"]]),
            digest=d["digest"],
        )

    @classmethod
    def read(cls, r: Reader) -> "StepTokens":
        return cls(
            group_id=r.text(),
            trajectory_id=r.text(),
            call_id=r.text(),
            attempt=r.int32(),
            prompt=Edge.read(r),
            response_ids=r.bytes(),
            response_logprobs=r.bytes(),
            spans=r.array(VersionSpan.read),
            digest=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """Next offset of each source topic that is already folded into the pool of this partition; written in the same transaction."""

    partition: int
    offsets: Mapping[str, int]
    fold_version: int
    updated_at_us: int

    def to_datum(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "offsets": self.offsets,
            "fold_version": self.fold_version,
            "updated_at_us": self.updated_at_us,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                int32(self.partition),
                mapping(self.offsets, long),
                int32(self.fold_version),
                long(self.updated_at_us),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "StreamPosition":
        return cls(
            partition=d["partition"],
            offsets=d["offsets"],
            fold_version=d["fold_version"],
            updated_at_us=d["updated_at_us"],
        )

    @classmethod
    def read(cls, r: Reader) -> "StreamPosition":
        return cls(
            partition=r.int32(),
            offsets=r.mapping(Reader.long),
            fold_version=r.int32(),
            updated_at_us=r.long(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor of a weights version."""

    name: str
    dtype: str
    """As torch prints it, without `torch.`."""
    shape: tuple[int, ...]

    def to_datum(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": self.shape,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.name),
                text(self.dtype),
                array([long(x) for x in self.shape]),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "TensorSpec":
        return cls(
            name=d["name"],
            dtype=d["dtype"],
            shape=tuple(d["shape"]),
        )

    @classmethod
    def read(cls, r: Reader) -> "TensorSpec":
        return cls(
            name=r.text(),
            dtype=r.text(),
            shape=r.array(Reader.long),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryAbandoned:
    """A reactor saw no progress until the deadline. event_id is uuid5 of subject, kind and last progress."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    reason: str
    last_progress_event_id: str

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "reason": self.reason,
            "last_progress_event_id": self.last_progress_event_id,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.group_id),
                text(self.trajectory_id),
                text(self.reason),
                text(self.last_progress_event_id),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "TrajectoryAbandoned":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            reason=d["reason"],
            last_progress_event_id=d["last_progress_event_id"],
        )

    @classmethod
    def read(cls, r: Reader) -> "TrajectoryAbandoned":
        return cls(
            envelope=Envelope.read(r),
            group_id=r.text(),
            trajectory_id=r.text(),
            reason=r.text(),
            last_progress_event_id=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryCompleted:
    """The agent says that it is done. In the log it stands after every acknowledged call of the trajectory."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    status: TrajectoryStatus
    """completed or failed"""
    calls: int | None = None
    """Acknowledged calls that the agent counted; ready only when as many are there."""
    rewards: int | None = None
    """Rewards that the agent assigned before; ready only when as many are there."""
    reward: float | None = None
    """Outcome reward: slot (trajectory, source `agent`, name `outcome`)."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "status": self.status,
            "calls": self.calls,
            "rewards": self.rewards,
            "reward": self.reward,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.group_id),
                text(self.trajectory_id),
                _TRAJECTORYSTATUS[self.status],
                NULL if self.calls is None else b"\x02" + int32(self.calls),
                NULL if self.rewards is None else b"\x02" + int32(self.rewards),
                NULL if self.reward is None else b"\x02" + double(self.reward),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "TrajectoryCompleted":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            status=d["status"],
            calls=d["calls"],
            rewards=d["rewards"],
            reward=d["reward"],
        )

    @classmethod
    def read(cls, r: Reader) -> "TrajectoryCompleted":
        return cls(
            envelope=Envelope.read(r),
            group_id=r.text(),
            trajectory_id=r.text(),
            status=_TRAJECTORYSTATUS_SYMBOLS[r.length()],
            calls=r.int32() if r.branch() else None,
            rewards=r.int32() if r.branch() else None,
            reward=r.double() if r.branch() else None,
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryEvicted:
    """An operator erased a trajectory from the pool. Absorbing."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    reason: str
    requested_by: str

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "reason": self.reason,
            "requested_by": self.requested_by,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.group_id),
                text(self.trajectory_id),
                text(self.reason),
                text(self.requested_by),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "TrajectoryEvicted":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            reason=d["reason"],
            requested_by=d["requested_by"],
        )

    @classmethod
    def read(cls, r: Reader) -> "TrajectoryEvicted":
        return cls(
            envelope=Envelope.read(r),
            group_id=r.text(),
            trajectory_id=r.text(),
            reason=r.text(),
            requested_by=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryRecord:
    """A trajectory as data. Key: group/trajectory."""

    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    status: TrajectoryStatus
    status_event_id: str = ""
    reason: str = ""
    """Why abandoned or evicted."""
    calls_expected: int | None = None
    rewards_expected: int | None = None
    calls: tuple[str, ...] = ()
    """call_ids in order of (received, call_id)"""
    branches: int = 0
    """Lines of calls, as far as prompt edges tell: a call that keeps all of its base goes on with it, others begin a line."""
    failed_calls: tuple[str, ...] = ()
    """call_id#attempt of failures, sorted"""
    rewards: tuple[RewardSlot, ...] = ()
    """Slots of the trajectory, and of steps by index, sorted."""
    outcome: float | None = None
    """Sum of the trajectory's slots."""
    return_total: float | None = None
    """Outcome + rewards of its steps."""
    min_version: int | None = None
    max_version: int | None = None
    policy_run_id: str | None = None
    """The run whose versions sampled it; `mixed` when several."""
    channel: str = ""
    agent: str | None = None
    task: str | None = None
    """JSON"""
    tags: tuple[str, ...] = ()
    run_id: str | None = None
    trainable_calls: int = 0
    ready: bool
    reasons: tuple[str, ...] = ()
    """Why it is not ready, sorted."""
    registered_event_id: str = ""
    """Of the winning TrajectoryStarted, or empty."""
    metadata: str | None = None
    """JSON"""
    last_progress_event_id: str = ""
    """Highest (occurred_at_us, event_id) of its facts."""
    last_progress_us: int = 0
    digest: str = ""
    """sha256 hex over the digests of its steps' records."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "status": self.status,
            "status_event_id": self.status_event_id,
            "reason": self.reason,
            "calls_expected": self.calls_expected,
            "rewards_expected": self.rewards_expected,
            "calls": self.calls,
            "branches": self.branches,
            "failed_calls": self.failed_calls,
            "rewards": [x.to_datum() for x in self.rewards],
            "outcome": self.outcome,
            "return_total": self.return_total,
            "min_version": self.min_version,
            "max_version": self.max_version,
            "policy_run_id": self.policy_run_id,
            "channel": self.channel,
            "agent": self.agent,
            "task": self.task,
            "tags": self.tags,
            "run_id": self.run_id,
            "trainable_calls": self.trainable_calls,
            "ready": self.ready,
            "reasons": self.reasons,
            "registered_event_id": self.registered_event_id,
            "metadata": self.metadata,
            "last_progress_event_id": self.last_progress_event_id,
            "last_progress_us": self.last_progress_us,
            "digest": self.digest,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                text(self.group_id),
                text(self.trajectory_id),
                _TRAJECTORYSTATUS[self.status],
                text(self.status_event_id),
                text(self.reason),
                NULL if self.calls_expected is None else b"\x02" + int32(self.calls_expected),
                NULL if self.rewards_expected is None else b"\x02" + int32(self.rewards_expected),
                array([text(x) for x in self.calls]),
                int32(self.branches),
                array([text(x) for x in self.failed_calls]),
                array([x.binary() for x in self.rewards]),
                NULL if self.outcome is None else b"\x02" + double(self.outcome),
                NULL if self.return_total is None else b"\x02" + double(self.return_total),
                NULL if self.min_version is None else b"\x02" + long(self.min_version),
                NULL if self.max_version is None else b"\x02" + long(self.max_version),
                NULL if self.policy_run_id is None else b"\x02" + text(self.policy_run_id),
                text(self.channel),
                NULL if self.agent is None else b"\x02" + text(self.agent),
                NULL if self.task is None else b"\x02" + text(self.task),
                array([text(x) for x in self.tags]),
                NULL if self.run_id is None else b"\x02" + text(self.run_id),
                int32(self.trainable_calls),
                boolean(self.ready),
                array([text(x) for x in self.reasons]),
                text(self.registered_event_id),
                NULL if self.metadata is None else b"\x02" + text(self.metadata),
                text(self.last_progress_event_id),
                long(self.last_progress_us),
                text(self.digest),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "TrajectoryRecord":
        return cls(
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            status=d["status"],
            status_event_id=d["status_event_id"],
            reason=d["reason"],
            calls_expected=d["calls_expected"],
            rewards_expected=d["rewards_expected"],
            calls=tuple(d["calls"]),
            branches=d["branches"],
            failed_calls=tuple(d["failed_calls"]),
            rewards=tuple([RewardSlot.from_datum(x) for x in d["rewards"]]),
            outcome=d["outcome"],
            return_total=d["return_total"],
            min_version=d["min_version"],
            max_version=d["max_version"],
            policy_run_id=d["policy_run_id"],
            channel=d["channel"],
            agent=d["agent"],
            task=d["task"],
            tags=tuple(d["tags"]),
            run_id=d["run_id"],
            trainable_calls=d["trainable_calls"],
            ready=d["ready"],
            reasons=tuple(d["reasons"]),
            registered_event_id=d["registered_event_id"],
            metadata=d["metadata"],
            last_progress_event_id=d["last_progress_event_id"],
            last_progress_us=d["last_progress_us"],
            digest=d["digest"],
        )

    @classmethod
    def read(cls, r: Reader) -> "TrajectoryRecord":
        return cls(
            group_id=r.text(),
            trajectory_id=r.text(),
            status=_TRAJECTORYSTATUS_SYMBOLS[r.length()],
            status_event_id=r.text(),
            reason=r.text(),
            calls_expected=r.int32() if r.branch() else None,
            rewards_expected=r.int32() if r.branch() else None,
            calls=r.array(Reader.text),
            branches=r.int32(),
            failed_calls=r.array(Reader.text),
            rewards=r.array(RewardSlot.read),
            outcome=r.double() if r.branch() else None,
            return_total=r.double() if r.branch() else None,
            min_version=r.long() if r.branch() else None,
            max_version=r.long() if r.branch() else None,
            policy_run_id=r.text() if r.branch() else None,
            channel=r.text(),
            agent=r.text() if r.branch() else None,
            task=r.text() if r.branch() else None,
            tags=r.array(Reader.text),
            run_id=r.text() if r.branch() else None,
            trainable_calls=r.int32(),
            ready=r.boolean(),
            reasons=r.array(Reader.text),
            registered_event_id=r.text(),
            metadata=r.text() if r.branch() else None,
            last_progress_event_id=r.text(),
            last_progress_us=r.long(),
            digest=r.text(),
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryStarted:
    """A trajectory was registered before its first call (optional)."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    channel: str = "train"
    agent: str | None = None
    task: str | None = None
    """JSON"""
    tags: tuple[str, ...] = ()
    metadata: str | None = None
    """JSON"""

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "group_id": self.group_id,
            "trajectory_id": self.trajectory_id,
            "channel": self.channel,
            "agent": self.agent,
            "task": self.task,
            "tags": self.tags,
            "metadata": self.metadata,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.group_id),
                text(self.trajectory_id),
                text(self.channel),
                NULL if self.agent is None else b"\x02" + text(self.agent),
                NULL if self.task is None else b"\x02" + text(self.task),
                array([text(x) for x in self.tags]),
                NULL if self.metadata is None else b"\x02" + text(self.metadata),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "TrajectoryStarted":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            channel=d["channel"],
            agent=d["agent"],
            task=d["task"],
            tags=tuple(d["tags"]),
            metadata=d["metadata"],
        )

    @classmethod
    def read(cls, r: Reader) -> "TrajectoryStarted":
        return cls(
            envelope=Envelope.read(r),
            group_id=r.text(),
            trajectory_id=r.text(),
            channel=r.text(),
            agent=r.text() if r.branch() else None,
            task=r.text() if r.branch() else None,
            tags=r.array(Reader.text),
            metadata=r.text() if r.branch() else None,
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsPublished:
    """A weights version exists and can be had."""

    envelope: Envelope
    model_id: str
    run_id: str
    version: int
    """Never reused for other bytes."""
    digest: str
    """sha256 hex over the tensors' bytes in manifest order."""
    bytes_total: int
    manifest: tuple[TensorSpec, ...]
    offer_url: str | None = None
    """Where a worker asks for a send of its own."""
    epoch: str = ""
    """Changes with each incarnation of the trainer."""
    checkpoint_uri: str | None = None
    """HF-format directory with exactly these weights."""
    sequence: int | None = None
    """Batch that made it."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "model_id": self.model_id,
            "run_id": self.run_id,
            "version": self.version,
            "digest": self.digest,
            "bytes_total": self.bytes_total,
            "manifest": [x.to_datum() for x in self.manifest],
            "offer_url": self.offer_url,
            "epoch": self.epoch,
            "checkpoint_uri": self.checkpoint_uri,
            "sequence": self.sequence,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.model_id),
                text(self.run_id),
                long(self.version),
                text(self.digest),
                long(self.bytes_total),
                array([x.binary() for x in self.manifest]),
                NULL if self.offer_url is None else b"\x02" + text(self.offer_url),
                text(self.epoch),
                NULL if self.checkpoint_uri is None else b"\x02" + text(self.checkpoint_uri),
                NULL if self.sequence is None else b"\x02" + long(self.sequence),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "WeightsPublished":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            model_id=d["model_id"],
            run_id=d["run_id"],
            version=d["version"],
            digest=d["digest"],
            bytes_total=d["bytes_total"],
            manifest=tuple([TensorSpec.from_datum(x) for x in d["manifest"]]),
            offer_url=d["offer_url"],
            epoch=d["epoch"],
            checkpoint_uri=d["checkpoint_uri"],
            sequence=d["sequence"],
        )

    @classmethod
    def read(cls, r: Reader) -> "WeightsPublished":
        return cls(
            envelope=Envelope.read(r),
            model_id=r.text(),
            run_id=r.text(),
            version=r.long(),
            digest=r.text(),
            bytes_total=r.long(),
            manifest=r.array(TensorSpec.read),
            offer_url=r.text() if r.branch() else None,
            epoch=r.text(),
            checkpoint_uri=r.text() if r.branch() else None,
            sequence=r.long() if r.branch() else None,
        )


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReported:
    """What a rollout worker is and can do. Key: worker_id."""

    envelope: Envelope
    worker_id: str
    url: str
    model_id: str
    model: str
    """Name under which the engine serves it."""
    state: WorkerState
    run_id: str | None = None
    version: int | None = None
    """Loaded and labelled."""
    in_flight: int = 0
    report_interval_s: float
    capabilities: tuple[str, ...] = ()
    """For example spans_json, spans_sse."""
    detail: str | None = None

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "worker_id": self.worker_id,
            "url": self.url,
            "model_id": self.model_id,
            "model": self.model,
            "state": self.state,
            "run_id": self.run_id,
            "version": self.version,
            "in_flight": self.in_flight,
            "report_interval_s": self.report_interval_s,
            "capabilities": self.capabilities,
            "detail": self.detail,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                text(self.worker_id),
                text(self.url),
                text(self.model_id),
                text(self.model),
                _WORKERSTATE[self.state],
                NULL if self.run_id is None else b"\x02" + text(self.run_id),
                NULL if self.version is None else b"\x02" + long(self.version),
                int32(self.in_flight),
                double(self.report_interval_s),
                array([text(x) for x in self.capabilities]),
                NULL if self.detail is None else b"\x02" + text(self.detail),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "WorkerReported":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            worker_id=d["worker_id"],
            url=d["url"],
            model_id=d["model_id"],
            model=d["model"],
            state=d["state"],
            run_id=d["run_id"],
            version=d["version"],
            in_flight=d["in_flight"],
            report_interval_s=d["report_interval_s"],
            capabilities=tuple(d["capabilities"]),
            detail=d["detail"],
        )

    @classmethod
    def read(cls, r: Reader) -> "WorkerReported":
        return cls(
            envelope=Envelope.read(r),
            worker_id=r.text(),
            url=r.text(),
            model_id=r.text(),
            model=r.text(),
            state=_WORKERSTATE_SYMBOLS[r.length()],
            run_id=r.text() if r.branch() else None,
            version=r.long() if r.branch() else None,
            in_flight=r.int32(),
            report_interval_s=r.double(),
            capabilities=r.array(Reader.text),
            detail=r.text() if r.branch() else None,
        )


Event = (
    BatchAssembled
    | BatchSkipped
    | BatchTrained
    | CallCaptured
    | CallFailed
    | GroupClosed
    | GroupOpened
    | GroupRecord
    | RewardAssigned
    | RunEnded
    | RunStarted
    | StepCurated
    | StepRecord
    | StepTokens
    | StreamPosition
    | TrajectoryAbandoned
    | TrajectoryCompleted
    | TrajectoryEvicted
    | TrajectoryRecord
    | TrajectoryStarted
    | WeightsPublished
    | WorkerReported
)
"""Anything that stands on a topic."""
EVENT_TYPES: dict[str, type[Event]] = {
    "BatchAssembled": BatchAssembled,
    "BatchSkipped": BatchSkipped,
    "BatchTrained": BatchTrained,
    "CallCaptured": CallCaptured,
    "CallFailed": CallFailed,
    "GroupClosed": GroupClosed,
    "GroupOpened": GroupOpened,
    "GroupRecord": GroupRecord,
    "RewardAssigned": RewardAssigned,
    "RunEnded": RunEnded,
    "RunStarted": RunStarted,
    "StepCurated": StepCurated,
    "StepRecord": StepRecord,
    "StepTokens": StepTokens,
    "StreamPosition": StreamPosition,
    "TrajectoryAbandoned": TrajectoryAbandoned,
    "TrajectoryCompleted": TrajectoryCompleted,
    "TrajectoryEvicted": TrajectoryEvicted,
    "TrajectoryRecord": TrajectoryRecord,
    "TrajectoryStarted": TrajectoryStarted,
    "WeightsPublished": WeightsPublished,
    "WorkerReported": WorkerReported,
}

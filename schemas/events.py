"""Event types, generated from avro/*.avsc by `python -m schemas.generate`. Do not edit."""

# ruff: noqa: E501, D101, D102
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.binary import (
    DOUBLE,
    END,
    LENGTH,
    NULL,
    POSITIVE,
    READ_DOUBLE,
    SMALL,
    again,
    array,
    int32,
    long,
    mapping,
    maybe_double,
    no_branch,
    number,
    number32,
    read_again,
    read_array,
    read_double,
    read_int32,
    read_length,
    read_long,
    read_mapping,
    read_maybe_double,
    read_text,
    read_time,
    text,
    time,
)
from schemas.quick import quick, unguarded

new = object.__new__
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
                LENGTH[len(b := self.event_id.encode())],
                b,
                time(self.occurred_at_us),
                LENGTH[len(b := self.producer.encode())],
                b,
                NULL if (v := self.run_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                LENGTH[len(b := self.tenant.encode())],
                b,
                NULL if (v := self.causation_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL if (v := self.correlation_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL if (v := self.traceparent) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[Envelope, int]":
        made: Any = new(_Envelope)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.event_id = d[at : (at := at + n)].decode()
        n, at = read_time(d, at)
        made.occurred_at_us = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.producer = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.run_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.run_id = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.tenant = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.causation_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.causation_id = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.correlation_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.correlation_id = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.traceparent = d[at : (at := at + n)].decode()
        elif n == 0:
            made.traceparent = None
        else:
            raise no_branch(n)
        made.__class__ = Envelope
        return made, at


_Envelope = unguarded(Envelope)


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
                LENGTH[len(b := self.topic.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.partition) < SMALL else int32(n)),
                (POSITIVE[n] if 0 <= (n := self.offset) < SMALL else long(n)),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "FactPosition":
        return cls(
            topic=d["topic"],
            partition=d["partition"],
            offset=d["offset"],
        )

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[FactPosition, int]":
        made: Any = new(_FactPosition)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.topic = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.partition = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.offset = n >> 1 ^ -(n & 1)
        made.__class__ = FactPosition
        return made, at


_FactPosition = unguarded(FactPosition)


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
                LENGTH[len(b := self.call_id.encode())],
                b,
                self.position.binary(),
                LENGTH[len(b := self.digest.encode())],
                b,
                (b"\x01" if self.trained else NULL),
                NULL if self.advantage is None else b"\x02" + DOUBLE(self.advantage),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[PlannedStep, int]":
        made: Any = new(_PlannedStep)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.call_id = d[at : (at := at + n)].decode()
        made.position, at = FactPosition.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.digest = d[at : (at := at + n)].decode()
        made.trained = d[at] != 0
        at += 1
        n = d[at]
        at += 1
        if n == 2:
            (made.advantage,) = READ_DOUBLE(d, at)
            at += 8
        elif n == 0:
            made.advantage = None
        else:
            raise no_branch(n)
        made.__class__ = PlannedStep
        return made, at


_PlannedStep = unguarded(PlannedStep)


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
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                DOUBLE(self.reward),
                DOUBLE(self.advantage),
                NULL
                if self.min_version is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.min_version) < SMALL else long(n)),
                NULL
                if self.max_version is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.max_version) < SMALL else long(n)),
                (array([x.binary() for x in self.steps]) if self.steps else END),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[PlannedTrajectory, int]":
        made: Any = new(_PlannedTrajectory)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        (made.reward,) = READ_DOUBLE(d, at)
        at += 8
        (made.advantage,) = READ_DOUBLE(d, at)
        at += 8
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.min_version = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.min_version = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.max_version = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.max_version = None
        else:
            raise no_branch(n)
        made.steps, at = ((), at + 1) if d[at] == 0 else read_array(PlannedStep.read, d, at)
        made.__class__ = PlannedTrajectory
        return made, at


_PlannedTrajectory = unguarded(PlannedTrajectory)


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
                LENGTH[len(b := self.run_id.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.sequence) < SMALL else long(n)),
                (POSITIVE[n] if 0 <= (n := self.version) < SMALL else long(n)),
                LENGTH[len(b := self.spec.encode())],
                b,
                (array([x.binary() for x in self.trajectories]) if self.trajectories else END),
                (POSITIVE[n] if 0 <= (n := self.seed) < SMALL else long(n)),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[BatchAssembled, int]":
        made: Any = new(_BatchAssembled)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.run_id = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.sequence = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.version = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.spec = d[at : (at := at + n)].decode()
        made.trajectories, at = ((), at + 1) if d[at] == 0 else read_array(PlannedTrajectory.read, d, at)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.seed = n >> 1 ^ -(n & 1)
        made.__class__ = BatchAssembled
        return made, at


_BatchAssembled = unguarded(BatchAssembled)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSkipped:
    """Groups that this run will never train; their admission capacity returns."""

    envelope: Envelope
    run_id: str
    group_ids: tuple[str, ...]
    reason: str
    sequence: int | None = None
    """The batch that is given up with these groups: its committed plan cannot be read any more, it is never trained. Null: they were in no plan."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_datum(),
            "run_id": self.run_id,
            "group_ids": self.group_ids,
            "reason": self.reason,
            "sequence": self.sequence,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                self.envelope.binary(),
                LENGTH[len(b := self.run_id.encode())],
                b,
                (array([text(x) for x in self.group_ids]) if self.group_ids else END),
                LENGTH[len(b := self.reason.encode())],
                b,
                NULL
                if self.sequence is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.sequence) < SMALL else long(n)),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "BatchSkipped":
        return cls(
            envelope=Envelope.from_datum(d["envelope"]),
            run_id=d["run_id"],
            group_ids=tuple(d["group_ids"]),
            reason=d["reason"],
            sequence=d["sequence"],
        )

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[BatchSkipped, int]":
        made: Any = new(_BatchSkipped)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.run_id = d[at : (at := at + n)].decode()
        made.group_ids, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.reason = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.sequence = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.sequence = None
        else:
            raise no_branch(n)
        made.__class__ = BatchSkipped
        return made, at


_BatchSkipped = unguarded(BatchSkipped)


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
                LENGTH[len(b := self.run_id.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.sequence) < SMALL else long(n)),
                (POSITIVE[n] if 0 <= (n := self.version) < SMALL else long(n)),
                mapping(self.metrics, DOUBLE),
                LENGTH[len(b := self.checkpoint_uri.encode())],
                b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[BatchTrained, int]":
        made: Any = new(_BatchTrained)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.run_id = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.sequence = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.version = n >> 1 ^ -(n & 1)
        made.metrics, at = read_mapping(read_double, d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.checkpoint_uri = d[at : (at := at + n)].decode()
        made.__class__ = BatchTrained
        return made, at


_BatchTrained = unguarded(BatchTrained)


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
                LENGTH[len(b := self.uri.encode())],
                b,
                LENGTH[len(b := self.sha256.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.size) < SMALL else long(n)),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "BlobRef":
        return cls(
            uri=d["uri"],
            sha256=d["sha256"],
            size=d["size"],
        )

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[BlobRef, int]":
        made: Any = new(_BlobRef)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.uri = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.sha256 = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.size = n >> 1 ^ -(n & 1)
        made.__class__ = BlobRef
        return made, at


_BlobRef = unguarded(BlobRef)


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
                NULL if (v := self.base_call_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                (POSITIVE[n] if 0 <= (n := self.keep) < SMALL else int32(n)),
                LENGTH[len(self.suffix)],
                self.suffix,
                (POSITIVE[n] if 0 <= (n := self.full_length) < SMALL else int32(n)),
                LENGTH[len(b := self.full_digest.encode())],
                b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[Edge, int]":
        made: Any = new(_Edge)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.base_call_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.base_call_id = None
        else:
            raise no_branch(n)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.keep = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.suffix = d[at : (at := at + n)]
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.full_length = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.full_digest = d[at : (at := at + n)].decode()
        made.__class__ = Edge
        return made, at


_Edge = unguarded(Edge)


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
                LENGTH[len(b := self.run_id.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.version) < SMALL else long(n)),
                (POSITIVE[n] if 0 <= (n := self.start) < SMALL else int32(n)),
                (POSITIVE[n] if 0 <= (n := self.end) < SMALL else int32(n)),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[VersionSpan, int]":
        made: Any = new(_VersionSpan)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.run_id = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.version = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.start = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.end = n >> 1 ^ -(n & 1)
        made.__class__ = VersionSpan
        return made, at


_VersionSpan = unguarded(VersionSpan)


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
                DOUBLE(self.temperature),
                DOUBLE(self.top_p),
                (POSITIVE[n] if 0 <= (n := self.top_k) < SMALL else int32(n)),
                DOUBLE(self.min_p),
                DOUBLE(self.presence_penalty),
                DOUBLE(self.frequency_penalty),
                DOUBLE(self.repetition_penalty),
                NULL
                if self.max_tokens is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.max_tokens) < SMALL else int32(n)),
                NULL if self.seed is None else b"\x02" + (POSITIVE[n] if 0 <= (n := self.seed) < SMALL else long(n)),
                (POSITIVE[n] if 0 <= (n := self.n) < SMALL else int32(n)),
                (array([text(x) for x in self.stop]) if self.stop else END),
                (b"\x01" if self.constrained else NULL),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[Sampling, int]":
        made: Any = new(_Sampling)
        (made.temperature,) = READ_DOUBLE(d, at)
        at += 8
        (made.top_p,) = READ_DOUBLE(d, at)
        at += 8
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.top_k = n >> 1 ^ -(n & 1)
        (made.min_p,) = READ_DOUBLE(d, at)
        at += 8
        (made.presence_penalty,) = READ_DOUBLE(d, at)
        at += 8
        (made.frequency_penalty,) = READ_DOUBLE(d, at)
        at += 8
        (made.repetition_penalty,) = READ_DOUBLE(d, at)
        at += 8
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
            made.max_tokens = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.max_tokens = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.seed = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.seed = None
        else:
            raise no_branch(n)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.n = n >> 1 ^ -(n & 1)
        made.stop, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        made.constrained = d[at] != 0
        at += 1
        made.__class__ = Sampling
        return made, at


_Sampling = unguarded(Sampling)


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
                (POSITIVE[n] if 0 <= (n := self.prompt_tokens) < SMALL else int32(n)),
                (POSITIVE[n] if 0 <= (n := self.completion_tokens) < SMALL else int32(n)),
                NULL
                if self.cached_tokens is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.cached_tokens) < SMALL else int32(n)),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "Usage":
        return cls(
            prompt_tokens=d["prompt_tokens"],
            completion_tokens=d["completion_tokens"],
            cached_tokens=d["cached_tokens"],
        )

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[Usage, int]":
        made: Any = new(_Usage)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.prompt_tokens = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.completion_tokens = n >> 1 ^ -(n & 1)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
            made.cached_tokens = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.cached_tokens = None
        else:
            raise no_branch(n)
        made.__class__ = Usage
        return made, at


_Usage = unguarded(Usage)


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
                time(self.received_us),
                time(self.dispatched_us),
                NULL if self.first_token_us is None else b"\x02" + time(self.first_token_us),
                time(self.done_us),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[Timings, int]":
        made: Any = new(_Timings)
        n, at = read_time(d, at)
        made.received_us = n >> 1 ^ -(n & 1)
        n, at = read_time(d, at)
        made.dispatched_us = n >> 1 ^ -(n & 1)
        n = d[at]
        at += 1
        if n == 2:
            n, at = read_time(d, at)
            made.first_token_us = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.first_token_us = None
        else:
            raise no_branch(n)
        n, at = read_time(d, at)
        made.done_us = n >> 1 ^ -(n & 1)
        made.__class__ = Timings
        return made, at


_Timings = unguarded(Timings)


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
                (b"\x01" if self.complete else NULL),
                (array([text(x) for x in self.missing]) if self.missing else END),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "Integrity":
        return cls(
            complete=d["complete"],
            missing=tuple(d["missing"]),
        )

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[Integrity, int]":
        made: Any = new(_Integrity)
        made.complete = d[at] != 0
        at += 1
        made.missing, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        made.__class__ = Integrity
        return made, at


_Integrity = unguarded(Integrity)


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
    """Retries of the same call count up from 0; a user who repeats a call under its key may begin again, at another gateway."""
    choice: int = 0
    """Index of the choice within the reply."""
    prompt: Edge
    """Token ids of the prompt as the engine rendered them."""
    base_digest: str = ""
    """What the prompt takes from the call that it is written against: sha256 hex of that call's prompt ids, and where ids of its response are kept, too, a digest of both (`datapool.fold.digests.base_digest`); empty where it is written in full."""
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
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                LENGTH[len(b := self.call_id.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.attempt) < SMALL else int32(n)),
                (POSITIVE[n] if 0 <= (n := self.choice) < SMALL else int32(n)),
                self.prompt.binary(),
                LENGTH[len(b := self.base_digest.encode())],
                b,
                LENGTH[len(self.response_ids)],
                self.response_ids,
                LENGTH[len(self.response_logprobs)],
                self.response_logprobs,
                (array([x.binary() for x in self.spans]) if self.spans else END),
                again(self.sampling),
                NULL if (v := self.finish_reason) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                self.request.binary(),
                NULL if self.request_blob is None else b"\x02" + self.request_blob.binary(),
                LENGTH[len(self.response_body)],
                self.response_body,
                NULL if self.response_blob is None else b"\x02" + self.response_blob.binary(),
                LENGTH[len(b := self.model_id.encode())],
                b,
                NULL if (v := self.worker_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                LENGTH[len(b := self.upstream.encode())],
                b,
                NULL if (v := self.agent) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                LENGTH[len(b := self.channel.encode())],
                b,
                (array([text(x) for x in self.tags]) if self.tags else END),
                _CALLSTATUS[self.status],
                (POSITIVE[n] if 0 <= (n := self.http_status) < SMALL else int32(n)),
                NULL if (v := self.idempotency_key) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[CallCaptured, int]":
        made: Any = new(_CallCaptured)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.call_id = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.attempt = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.choice = n >> 1 ^ -(n & 1)
        made.prompt, at = Edge.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.base_digest = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.response_ids = d[at : (at := at + n)]
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.response_logprobs = d[at : (at := at + n)]
        made.spans, at = ((), at + 1) if d[at] == 0 else read_array(VersionSpan.read, d, at)
        made.sampling, at = read_again(Sampling, d, at)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.finish_reason = d[at : (at := at + n)].decode()
        elif n == 0:
            made.finish_reason = None
        else:
            raise no_branch(n)
        made.request, at = Edge.read(d, at)
        n = d[at]
        at += 1
        if n == 2:
            made.request_blob, at = BlobRef.read(d, at)
        elif n == 0:
            made.request_blob = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.response_body = d[at : (at := at + n)]
        n = d[at]
        at += 1
        if n == 2:
            made.response_blob, at = BlobRef.read(d, at)
        elif n == 0:
            made.response_blob = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.model_id = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.worker_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.worker_id = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.upstream = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.agent = d[at : (at := at + n)].decode()
        elif n == 0:
            made.agent = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.channel = d[at : (at := at + n)].decode()
        made.tags, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n, at = read_length(d, at)
        made.status = _CALLSTATUS_SYMBOLS[n]
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.http_status = n >> 1 ^ -(n & 1)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.idempotency_key = d[at : (at := at + n)].decode()
        elif n == 0:
            made.idempotency_key = None
        else:
            raise no_branch(n)
        made.usage, at = Usage.read(d, at)
        made.timings, at = Timings.read(d, at)
        made.integrity, at = read_again(Integrity, d, at)
        made.__class__ = CallCaptured
        return made, at


_CallCaptured = unguarded(CallCaptured)


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
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                LENGTH[len(b := self.call_id.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.attempt) < SMALL else int32(n)),
                (POSITIVE[n] if 0 <= (n := self.http_status) < SMALL else int32(n)),
                LENGTH[len(b := self.reason.encode())],
                b,
                LENGTH[len(b := self.message.encode())],
                b,
                LENGTH[len(b := self.model_id.encode())],
                b,
                NULL if (v := self.worker_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                LENGTH[len(b := self.upstream.encode())],
                b,
                NULL if (v := self.agent) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                LENGTH[len(b := self.channel.encode())],
                b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[CallFailed, int]":
        made: Any = new(_CallFailed)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.call_id = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.attempt = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.http_status = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.reason = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.message = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.model_id = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.worker_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.worker_id = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.upstream = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.agent = d[at : (at := at + n)].decode()
        elif n == 0:
            made.agent = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.channel = d[at : (at := at + n)].decode()
        made.timings, at = Timings.read(d, at)
        made.__class__ = CallFailed
        return made, at


_CallFailed = unguarded(CallFailed)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One StepCurated as a step's record keeps it, whether it counts or not."""

    event_id: str
    occurred_at_us: int = 0
    """UTC microseconds, of the event: of equal revisions the later word counts."""
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
            "occurred_at_us": self.occurred_at_us,
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
                LENGTH[len(b := self.event_id.encode())],
                b,
                time(self.occurred_at_us),
                (POSITIVE[n] if 0 <= (n := self.revision) < SMALL else long(n)),
                LENGTH[len(b := self.who.encode())],
                b,
                NULL if self.trainable is None else b"\x02" + (b"\x01" if self.trainable else NULL),
                NULL if self.quality is None else b"\x02" + DOUBLE(self.quality),
                NULL if self.tags is None else b"\x02" + (array([text(x) for x in self.tags]) if self.tags else END),
                NULL if (v := self.note) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                (array([text(x) for x in self.undoes]) if self.undoes else END),
                mapping(self.scores, maybe_double),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "Judgement":
        return cls(
            event_id=d["event_id"],
            occurred_at_us=d["occurred_at_us"],
            revision=d["revision"],
            who=d["who"],
            trainable=d["trainable"],
            quality=d["quality"],
            tags=None if d["tags"] is None else tuple(d["tags"]),
            note=d["note"],
            undoes=tuple(d["undoes"]),
            scores=d["scores"],
        )

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[Judgement, int]":
        made: Any = new(_Judgement)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.event_id = d[at : (at := at + n)].decode()
        n, at = read_time(d, at)
        made.occurred_at_us = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.revision = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.who = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            made.trainable = d[at] != 0
            at += 1
        elif n == 0:
            made.trainable = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            (made.quality,) = READ_DOUBLE(d, at)
            at += 8
        elif n == 0:
            made.quality = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            made.tags, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        elif n == 0:
            made.tags = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.note = d[at : (at := at + n)].decode()
        elif n == 0:
            made.note = None
        else:
            raise no_branch(n)
        made.undoes, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        made.scores, at = read_mapping(read_maybe_double, d, at)
        made.__class__ = Judgement
        return made, at


_Judgement = unguarded(Judgement)


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
    """All of them, those taken back too, sorted by (revision, occurred_at_us, event_id)."""
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
                NULL if self.trainable is None else b"\x02" + (b"\x01" if self.trainable else NULL),
                NULL if self.quality is None else b"\x02" + DOUBLE(self.quality),
                (array([text(x) for x in self.tags]) if self.tags else END),
                NULL if (v := self.note) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                LENGTH[len(b := self.who.encode())],
                b,
                (array([x.binary() for x in self.judgements]) if self.judgements else END),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[Curation, int]":
        made: Any = new(_Curation)
        n = d[at]
        at += 1
        if n == 2:
            made.trainable = d[at] != 0
            at += 1
        elif n == 0:
            made.trainable = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            (made.quality,) = READ_DOUBLE(d, at)
            at += 8
        elif n == 0:
            made.quality = None
        else:
            raise no_branch(n)
        made.tags, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.note = d[at : (at := at + n)].decode()
        elif n == 0:
            made.note = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.who = d[at : (at := at + n)].decode()
        made.judgements, at = ((), at + 1) if d[at] == 0 else read_array(Judgement.read, d, at)
        made.scores, at = read_mapping(read_maybe_double, d, at)
        made.__class__ = Curation
        return made, at


_Curation = unguarded(Curation)


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
                LENGTH[len(b := self.group_id.encode())],
                b,
                (array([text(x) for x in self.members]) if self.members else END),
                LENGTH[len(b := self.reason.encode())],
                b,
                LENGTH[len(b := self.last_progress_event_id.encode())],
                b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[GroupClosed, int]":
        made: Any = new(_GroupClosed)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        made.members, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.reason = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.last_progress_event_id = d[at : (at := at + n)].decode()
        made.__class__ = GroupClosed
        return made, at


_GroupClosed = unguarded(GroupClosed)


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
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                _TRAJECTORYSTATUS[self.status],
                (b"\x01" if self.ready else NULL),
                NULL if self.return_total is None else b"\x02" + DOUBLE(self.return_total),
                NULL
                if self.min_version is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.min_version) < SMALL else long(n)),
                NULL
                if self.max_version is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.max_version) < SMALL else long(n)),
                LENGTH[len(b := self.digest.encode())],
                b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[GroupMember, int]":
        made: Any = new(_GroupMember)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n, at = read_length(d, at)
        made.status = _TRAJECTORYSTATUS_SYMBOLS[n]
        made.ready = d[at] != 0
        at += 1
        n = d[at]
        at += 1
        if n == 2:
            (made.return_total,) = READ_DOUBLE(d, at)
            at += 8
        elif n == 0:
            made.return_total = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.min_version = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.min_version = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.max_version = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.max_version = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.digest = d[at : (at := at + n)].decode()
        made.__class__ = GroupMember
        return made, at


_GroupMember = unguarded(GroupMember)


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
                LENGTH[len(b := self.group_id.encode())],
                b,
                NULL
                if self.expected_size is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.expected_size) < SMALL else int32(n)),
                LENGTH[len(b := self.channel.encode())],
                b,
                NULL if (v := self.task) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL if self.deadline_us is None else b"\x02" + time(self.deadline_us),
                NULL if (v := self.agent) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                (array([text(x) for x in self.tags]) if self.tags else END),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[GroupOpened, int]":
        made: Any = new(_GroupOpened)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
            made.expected_size = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.expected_size = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.channel = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.task = d[at : (at := at + n)].decode()
        elif n == 0:
            made.task = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = read_time(d, at)
            made.deadline_us = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.deadline_us = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.agent = d[at : (at := at + n)].decode()
        elif n == 0:
            made.agent = None
        else:
            raise no_branch(n)
        made.tags, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        made.__class__ = GroupOpened
        return made, at


_GroupOpened = unguarded(GroupOpened)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group as data. Key: group_id."""

    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    declared: bool
    declared_event_id: str = ""
    declared_us: int = 0
    """UTC microseconds, when that event says that it occurred."""
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
    """Sorted by trajectory_id; exactly the listed ones once closed; the first of them where a record holds no more."""
    members_left_out: int = 0
    """Members that the record has no room for."""
    closed: bool = False
    closed_event_id: str = ""
    closed_us: int = 0
    """UTC microseconds, when that event says that it occurred."""
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
            "declared_us": self.declared_us,
            "expected_size": self.expected_size,
            "channel": self.channel,
            "task": self.task,
            "deadline_us": self.deadline_us,
            "agent": self.agent,
            "tags": self.tags,
            "run_id": self.run_id,
            "members": [x.to_datum() for x in self.members],
            "members_left_out": self.members_left_out,
            "closed": self.closed,
            "closed_event_id": self.closed_event_id,
            "closed_us": self.closed_us,
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
                LENGTH[len(b := self.group_id.encode())],
                b,
                (b"\x01" if self.declared else NULL),
                LENGTH[len(b := self.declared_event_id.encode())],
                b,
                time(self.declared_us),
                NULL
                if self.expected_size is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.expected_size) < SMALL else int32(n)),
                LENGTH[len(b := self.channel.encode())],
                b,
                NULL if (v := self.task) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL if self.deadline_us is None else b"\x02" + time(self.deadline_us),
                NULL if (v := self.agent) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                (array([text(x) for x in self.tags]) if self.tags else END),
                NULL if (v := self.run_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                (array([x.binary() for x in self.members]) if self.members else END),
                (POSITIVE[n] if 0 <= (n := self.members_left_out) < SMALL else int32(n)),
                (b"\x01" if self.closed else NULL),
                LENGTH[len(b := self.closed_event_id.encode())],
                b,
                time(self.closed_us),
                (array([text(x) for x in self.closed_members]) if self.closed_members else END),
                (b"\x01" if self.ready else NULL),
                (array([text(x) for x in self.reasons]) if self.reasons else END),
                NULL if self.reward_mean is None else b"\x02" + DOUBLE(self.reward_mean),
                NULL if self.reward_std is None else b"\x02" + DOUBLE(self.reward_std),
                (b"\x01" if self.zero_variance else NULL),
                NULL
                if self.min_version is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.min_version) < SMALL else long(n)),
                NULL
                if self.max_version is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.max_version) < SMALL else long(n)),
                LENGTH[len(b := self.last_progress_event_id.encode())],
                b,
                time(self.last_progress_us),
                LENGTH[len(b := self.digest.encode())],
                b,
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "GroupRecord":
        return cls(
            group_id=d["group_id"],
            declared=d["declared"],
            declared_event_id=d["declared_event_id"],
            declared_us=d["declared_us"],
            expected_size=d["expected_size"],
            channel=d["channel"],
            task=d["task"],
            deadline_us=d["deadline_us"],
            agent=d["agent"],
            tags=tuple(d["tags"]),
            run_id=d["run_id"],
            members=tuple([GroupMember.from_datum(x) for x in d["members"]]),
            members_left_out=d["members_left_out"],
            closed=d["closed"],
            closed_event_id=d["closed_event_id"],
            closed_us=d["closed_us"],
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[GroupRecord, int]":
        made: Any = new(_GroupRecord)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        made.declared = d[at] != 0
        at += 1
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.declared_event_id = d[at : (at := at + n)].decode()
        n, at = read_time(d, at)
        made.declared_us = n >> 1 ^ -(n & 1)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
            made.expected_size = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.expected_size = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.channel = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.task = d[at : (at := at + n)].decode()
        elif n == 0:
            made.task = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = read_time(d, at)
            made.deadline_us = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.deadline_us = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.agent = d[at : (at := at + n)].decode()
        elif n == 0:
            made.agent = None
        else:
            raise no_branch(n)
        made.tags, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.run_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.run_id = None
        else:
            raise no_branch(n)
        made.members, at = ((), at + 1) if d[at] == 0 else read_array(GroupMember.read, d, at)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.members_left_out = n >> 1 ^ -(n & 1)
        made.closed = d[at] != 0
        at += 1
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.closed_event_id = d[at : (at := at + n)].decode()
        n, at = read_time(d, at)
        made.closed_us = n >> 1 ^ -(n & 1)
        made.closed_members, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        made.ready = d[at] != 0
        at += 1
        made.reasons, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n = d[at]
        at += 1
        if n == 2:
            (made.reward_mean,) = READ_DOUBLE(d, at)
            at += 8
        elif n == 0:
            made.reward_mean = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            (made.reward_std,) = READ_DOUBLE(d, at)
            at += 8
        elif n == 0:
            made.reward_std = None
        else:
            raise no_branch(n)
        made.zero_variance = d[at] != 0
        at += 1
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.min_version = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.min_version = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.max_version = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.max_version = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.last_progress_event_id = d[at : (at := at + n)].decode()
        n, at = read_time(d, at)
        made.last_progress_us = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.digest = d[at : (at := at + n)].decode()
        made.__class__ = GroupRecord
        return made, at


_GroupRecord = unguarded(GroupRecord)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class RewardAssigned:
    """A reward for a call, for a step by its index, or (neither given) for the trajectory. Slot = (subject, source, name); the highest (revision, occurred_at_us, event_id) wins. Of a trajectory, source `agent` and name `completion` are its completion's own and are refused."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    call_id: str | None = None
    step_index: int | None = None
    """Counted from 0 over the trajectory's calls; of one with several choices the first is meant."""
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
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                NULL if (v := self.call_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL
                if self.step_index is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.step_index) < SMALL else int32(n)),
                LENGTH[len(b := self.source.encode())],
                b,
                LENGTH[len(b := self.name.encode())],
                b,
                DOUBLE(self.value),
                (POSITIVE[n] if 0 <= (n := self.revision) < SMALL else long(n)),
                NULL if (v := self.metadata) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[RewardAssigned, int]":
        made: Any = new(_RewardAssigned)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.call_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.call_id = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
            made.step_index = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.step_index = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.source = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.name = d[at : (at := at + n)].decode()
        (made.value,) = READ_DOUBLE(d, at)
        at += 8
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.revision = n >> 1 ^ -(n & 1)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.metadata = d[at : (at := at + n)].decode()
        elif n == 0:
            made.metadata = None
        else:
            raise no_branch(n)
        made.__class__ = RewardAssigned
        return made, at


_RewardAssigned = unguarded(RewardAssigned)


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
    occurred_at_us: int = 0
    """UTC microseconds, of the event: of equal revisions the later word counts."""

    def to_datum(self) -> dict[str, Any]:
        return {
            "call_id": self.call_id,
            "step_index": self.step_index,
            "source": self.source,
            "name": self.name,
            "value": self.value,
            "revision": self.revision,
            "event_id": self.event_id,
            "occurred_at_us": self.occurred_at_us,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                NULL if (v := self.call_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL
                if self.step_index is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.step_index) < SMALL else int32(n)),
                LENGTH[len(b := self.source.encode())],
                b,
                LENGTH[len(b := self.name.encode())],
                b,
                DOUBLE(self.value),
                (POSITIVE[n] if 0 <= (n := self.revision) < SMALL else long(n)),
                LENGTH[len(b := self.event_id.encode())],
                b,
                time(self.occurred_at_us),
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
            occurred_at_us=d["occurred_at_us"],
        )

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[RewardSlot, int]":
        made: Any = new(_RewardSlot)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.call_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.call_id = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
            made.step_index = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.step_index = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.source = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.name = d[at : (at := at + n)].decode()
        (made.value,) = READ_DOUBLE(d, at)
        at += 8
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.revision = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.event_id = d[at : (at := at + n)].decode()
        n, at = read_time(d, at)
        made.occurred_at_us = n >> 1 ^ -(n & 1)
        made.__class__ = RewardSlot
        return made, at


_RewardSlot = unguarded(RewardSlot)


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
                LENGTH[len(b := self.run_id.encode())],
                b,
                _RUNSTATUS[self.status],
                LENGTH[len(b := self.reason.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.batches) < SMALL else long(n)),
                (POSITIVE[n] if 0 <= (n := self.version) < SMALL else long(n)),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[RunEnded, int]":
        made: Any = new(_RunEnded)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.run_id = d[at : (at := at + n)].decode()
        n, at = read_length(d, at)
        made.status = _RUNSTATUS_SYMBOLS[n]
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.reason = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.batches = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.version = n >> 1 ^ -(n & 1)
        made.__class__ = RunEnded
        return made, at


_RunEnded = unguarded(RunEnded)


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
                LENGTH[len(b := self.run_id.encode())],
                b,
                LENGTH[len(b := self.model_id.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.incarnation) < SMALL else int32(n)),
                LENGTH[len(b := self.config.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.group_size) < SMALL else int32(n)),
                (POSITIVE[n] if 0 <= (n := self.groups_per_batch) < SMALL else int32(n)),
                (POSITIVE[n] if 0 <= (n := self.staleness_max) < SMALL else int32(n)),
                LENGTH[len(b := self.facts_prefix.encode())],
                b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[RunStarted, int]":
        made: Any = new(_RunStarted)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.run_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.model_id = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.incarnation = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.config = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.group_size = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.groups_per_batch = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.staleness_max = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.facts_prefix = d[at : (at := at + n)].decode()
        made.__class__ = RunStarted
        return made, at


_RunStarted = unguarded(RunStarted)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class StepCurated:
    """A person or a tool judged a step, or took judgements back. Fields that are null leave the earlier judgement; per field the highest (revision, occurred_at_us, event_id) wins among those that nobody took back."""

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
    """Event ids of judgements of this step, below this one in (revision, occurred_at_us, event_id), that count no more: as if nobody had ever given them. Of an undo: what it took back counts again."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """Scorer (`name@version`) -> 0 (bad) to 1 (good); null: it looked and has nothing to say. Per scorer the highest (revision, occurred_at_us, event_id) counts."""

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
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                LENGTH[len(b := self.call_id.encode())],
                b,
                NULL if self.trainable is None else b"\x02" + (b"\x01" if self.trainable else NULL),
                NULL if self.quality is None else b"\x02" + DOUBLE(self.quality),
                NULL if self.tags is None else b"\x02" + (array([text(x) for x in self.tags]) if self.tags else END),
                NULL if (v := self.note) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                LENGTH[len(b := self.who.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.revision) < SMALL else long(n)),
                (array([text(x) for x in self.undoes]) if self.undoes else END),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[StepCurated, int]":
        made: Any = new(_StepCurated)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.call_id = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            made.trainable = d[at] != 0
            at += 1
        elif n == 0:
            made.trainable = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            (made.quality,) = READ_DOUBLE(d, at)
            at += 8
        elif n == 0:
            made.quality = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            made.tags, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        elif n == 0:
            made.tags = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.note = d[at : (at := at + n)].decode()
        elif n == 0:
            made.note = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.who = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.revision = n >> 1 ^ -(n & 1)
        made.undoes, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        made.scores, at = read_mapping(read_maybe_double, d, at)
        made.__class__ = StepCurated
        return made, at


_StepCurated = unguarded(StepCurated)


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
    """Of the capture that counts: of the completed ones (else of all) the one received last, whose reply the agent went on with."""
    first_received_us: int = 0
    """UTC microseconds, when the first of its captures was received: its place among the calls, which a retry does not move."""
    attempts: tuple[int, ...] = ()
    """All attempts seen, sorted."""
    position: FactPosition | None = None
    """Of its CallCaptured in the facts: of the capture that counts, at the lowest offset seen."""
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
    """What the prompt takes from its base, by digest: `CallCaptured.base_digest`."""
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
            "first_received_us": self.first_received_us,
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
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                LENGTH[len(b := self.call_id.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.attempt) < SMALL else int32(n)),
                time(self.first_received_us),
                (array([int32(x) for x in self.attempts]) if self.attempts else END),
                NULL if self.position is None else b"\x02" + self.position.binary(),
                LENGTH[len(b := self.digest.encode())],
                b,
                LENGTH[len(b := self.prompt_id.encode())],
                b,
                LENGTH[len(b := self.response_id.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.prompt_length) < SMALL else int32(n)),
                (POSITIVE[n] if 0 <= (n := self.response_length) < SMALL else int32(n)),
                NULL if (v := self.base_call_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                (POSITIVE[n] if 0 <= (n := self.base_keep) < SMALL else int32(n)),
                LENGTH[len(b := self.base_digest.encode())],
                b,
                (array([x.binary() for x in self.spans]) if self.spans else END),
                NULL
                if self.min_version is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.min_version) < SMALL else long(n)),
                NULL
                if self.max_version is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.max_version) < SMALL else long(n)),
                NULL if (v := self.policy_run_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL if self.sampling is None else b"\x02" + again(self.sampling),
                NULL if (v := self.finish_reason) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                _CALLSTATUS[self.status],
                (b"\x01" if self.trainable else NULL),
                (array([text(x) for x in self.reasons]) if self.reasons else END),
                (array([x.binary() for x in self.rewards]) if self.rewards else END),
                NULL if self.reward_total is None else b"\x02" + DOUBLE(self.reward_total),
                NULL if self.curation is None else b"\x02" + self.curation.binary(),
                LENGTH[len(b := self.model_id.encode())],
                b,
                NULL if (v := self.worker_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL if (v := self.agent) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                LENGTH[len(b := self.channel.encode())],
                b,
                NULL if (v := self.task) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                (array([text(x) for x in self.tags]) if self.tags else END),
                NULL if self.usage is None else b"\x02" + self.usage.binary(),
                NULL if self.timings is None else b"\x02" + self.timings.binary(),
                NULL if self.integrity is None else b"\x02" + again(self.integrity),
                NULL if (v := self.run_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "StepRecord":
        return cls(
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            call_id=d["call_id"],
            attempt=d["attempt"],
            first_received_us=d["first_received_us"],
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[StepRecord, int]":
        made: Any = new(_StepRecord)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.call_id = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.attempt = n >> 1 ^ -(n & 1)
        n, at = read_time(d, at)
        made.first_received_us = n >> 1 ^ -(n & 1)
        made.attempts, at = ((), at + 1) if d[at] == 0 else read_array(read_int32, d, at)
        n = d[at]
        at += 1
        if n == 2:
            made.position, at = FactPosition.read(d, at)
        elif n == 0:
            made.position = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.digest = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.prompt_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.response_id = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.prompt_length = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.response_length = n >> 1 ^ -(n & 1)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.base_call_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.base_call_id = None
        else:
            raise no_branch(n)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.base_keep = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.base_digest = d[at : (at := at + n)].decode()
        made.spans, at = ((), at + 1) if d[at] == 0 else read_array(VersionSpan.read, d, at)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.min_version = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.min_version = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.max_version = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.max_version = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.policy_run_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.policy_run_id = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            made.sampling, at = read_again(Sampling, d, at)
        elif n == 0:
            made.sampling = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.finish_reason = d[at : (at := at + n)].decode()
        elif n == 0:
            made.finish_reason = None
        else:
            raise no_branch(n)
        n, at = read_length(d, at)
        made.status = _CALLSTATUS_SYMBOLS[n]
        made.trainable = d[at] != 0
        at += 1
        made.reasons, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        made.rewards, at = ((), at + 1) if d[at] == 0 else read_array(RewardSlot.read, d, at)
        n = d[at]
        at += 1
        if n == 2:
            (made.reward_total,) = READ_DOUBLE(d, at)
            at += 8
        elif n == 0:
            made.reward_total = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            made.curation, at = Curation.read(d, at)
        elif n == 0:
            made.curation = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.model_id = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.worker_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.worker_id = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.agent = d[at : (at := at + n)].decode()
        elif n == 0:
            made.agent = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.channel = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.task = d[at : (at := at + n)].decode()
        elif n == 0:
            made.task = None
        else:
            raise no_branch(n)
        made.tags, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n = d[at]
        at += 1
        if n == 2:
            made.usage, at = Usage.read(d, at)
        elif n == 0:
            made.usage = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            made.timings, at = Timings.read(d, at)
        elif n == 0:
            made.timings = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            made.integrity, at = read_again(Integrity, d, at)
        elif n == 0:
            made.integrity = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.run_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.run_id = None
        else:
            raise no_branch(n)
        made.__class__ = StepRecord
        return made, at


_StepRecord = unguarded(StepRecord)


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
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                LENGTH[len(b := self.call_id.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.attempt) < SMALL else int32(n)),
                self.prompt.binary(),
                LENGTH[len(self.response_ids)],
                self.response_ids,
                LENGTH[len(self.response_logprobs)],
                self.response_logprobs,
                (array([x.binary() for x in self.spans]) if self.spans else END),
                LENGTH[len(b := self.digest.encode())],
                b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[StepTokens, int]":
        made: Any = new(_StepTokens)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.call_id = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.attempt = n >> 1 ^ -(n & 1)
        made.prompt, at = Edge.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.response_ids = d[at : (at := at + n)]
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.response_logprobs = d[at : (at := at + n)]
        made.spans, at = ((), at + 1) if d[at] == 0 else read_array(VersionSpan.read, d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.digest = d[at : (at := at + n)].decode()
        made.__class__ = StepTokens
        return made, at


_StepTokens = unguarded(StepTokens)


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
                (POSITIVE[n] if 0 <= (n := self.partition) < SMALL else int32(n)),
                mapping(self.offsets, long),
                (POSITIVE[n] if 0 <= (n := self.fold_version) < SMALL else int32(n)),
                time(self.updated_at_us),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[StreamPosition, int]":
        made: Any = new(_StreamPosition)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.partition = n >> 1 ^ -(n & 1)
        made.offsets, at = read_mapping(read_long, d, at)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.fold_version = n >> 1 ^ -(n & 1)
        n, at = read_time(d, at)
        made.updated_at_us = n >> 1 ^ -(n & 1)
        made.__class__ = StreamPosition
        return made, at


_StreamPosition = unguarded(StreamPosition)


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
                LENGTH[len(b := self.name.encode())],
                b,
                LENGTH[len(b := self.dtype.encode())],
                b,
                (array([long(x) for x in self.shape]) if self.shape else END),
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "TensorSpec":
        return cls(
            name=d["name"],
            dtype=d["dtype"],
            shape=tuple(d["shape"]),
        )

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[TensorSpec, int]":
        made: Any = new(_TensorSpec)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.name = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.dtype = d[at : (at := at + n)].decode()
        made.shape, at = ((), at + 1) if d[at] == 0 else read_array(read_long, d, at)
        made.__class__ = TensorSpec
        return made, at


_TensorSpec = unguarded(TensorSpec)


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
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                LENGTH[len(b := self.reason.encode())],
                b,
                LENGTH[len(b := self.last_progress_event_id.encode())],
                b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[TrajectoryAbandoned, int]":
        made: Any = new(_TrajectoryAbandoned)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.reason = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.last_progress_event_id = d[at : (at := at + n)].decode()
        made.__class__ = TrajectoryAbandoned
        return made, at


_TrajectoryAbandoned = unguarded(TrajectoryAbandoned)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryCompleted:
    """The agent says that it is done. In the log it stands after every acknowledged call of the trajectory. Of two completions one counts as a whole: status, counts and reward are never mixed."""

    envelope: Envelope
    group_id: str
    """Group of trajectories that share a task; equals trajectory_id where none was given."""
    trajectory_id: str
    """Unique within its group only."""
    status: TrajectoryStatus
    """completed or failed"""
    calls: int | None = None
    """Acknowledged calls that the agent counted (one with several choices is one); ready only when exactly as many are there."""
    rewards: int | None = None
    """Slots that the agent filled before, this event's own reward not among them; ready only when as many are there."""
    reward: float | None = None
    """Outcome reward, a slot of its own: (trajectory, source `agent`, name `completion`). Rewards of different slots add up; within a slot the later word replaces; this one is corrected by completing again."""

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
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                _TRAJECTORYSTATUS[self.status],
                NULL if self.calls is None else b"\x02" + (POSITIVE[n] if 0 <= (n := self.calls) < SMALL else int32(n)),
                NULL
                if self.rewards is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.rewards) < SMALL else int32(n)),
                NULL if self.reward is None else b"\x02" + DOUBLE(self.reward),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[TrajectoryCompleted, int]":
        made: Any = new(_TrajectoryCompleted)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n, at = read_length(d, at)
        made.status = _TRAJECTORYSTATUS_SYMBOLS[n]
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
            made.calls = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.calls = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
            made.rewards = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.rewards = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            (made.reward,) = READ_DOUBLE(d, at)
            at += 8
        elif n == 0:
            made.reward = None
        else:
            raise no_branch(n)
        made.__class__ = TrajectoryCompleted
        return made, at


_TrajectoryCompleted = unguarded(TrajectoryCompleted)


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
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                LENGTH[len(b := self.reason.encode())],
                b,
                LENGTH[len(b := self.requested_by.encode())],
                b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[TrajectoryEvicted, int]":
        made: Any = new(_TrajectoryEvicted)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.reason = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.requested_by = d[at : (at := at + n)].decode()
        made.__class__ = TrajectoryEvicted
        return made, at


_TrajectoryEvicted = unguarded(TrajectoryEvicted)


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
    status_us: int = 0
    """UTC microseconds, when that event says that it occurred."""
    reason: str = ""
    """Why abandoned or evicted."""
    calls_expected: int | None = None
    rewards_expected: int | None = None
    calls: tuple[str, ...] = ()
    """call_ids in order of (first received, call_id); the first of them where a record holds no more"""
    calls_left_out: int = 0
    """Calls that the record has no room for."""
    branches: int = 0
    """Lines of calls, as far as prompt edges tell: a call that keeps all of its base goes on with it, others begin a line."""
    failed_calls: tuple[str, ...] = ()
    """call_id#attempt of failures, sorted; the first so many"""
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
    registered_us: int = 0
    """UTC microseconds, when that event says that it occurred."""
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
            "status_us": self.status_us,
            "reason": self.reason,
            "calls_expected": self.calls_expected,
            "rewards_expected": self.rewards_expected,
            "calls": self.calls,
            "calls_left_out": self.calls_left_out,
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
            "registered_us": self.registered_us,
            "metadata": self.metadata,
            "last_progress_event_id": self.last_progress_event_id,
            "last_progress_us": self.last_progress_us,
            "digest": self.digest,
        }

    def binary(self) -> bytes:
        return b"".join(
            (
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                _TRAJECTORYSTATUS[self.status],
                LENGTH[len(b := self.status_event_id.encode())],
                b,
                time(self.status_us),
                LENGTH[len(b := self.reason.encode())],
                b,
                NULL
                if self.calls_expected is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.calls_expected) < SMALL else int32(n)),
                NULL
                if self.rewards_expected is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.rewards_expected) < SMALL else int32(n)),
                (array([text(x) for x in self.calls]) if self.calls else END),
                (POSITIVE[n] if 0 <= (n := self.calls_left_out) < SMALL else int32(n)),
                (POSITIVE[n] if 0 <= (n := self.branches) < SMALL else int32(n)),
                (array([text(x) for x in self.failed_calls]) if self.failed_calls else END),
                (array([x.binary() for x in self.rewards]) if self.rewards else END),
                NULL if self.outcome is None else b"\x02" + DOUBLE(self.outcome),
                NULL if self.return_total is None else b"\x02" + DOUBLE(self.return_total),
                NULL
                if self.min_version is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.min_version) < SMALL else long(n)),
                NULL
                if self.max_version is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.max_version) < SMALL else long(n)),
                NULL if (v := self.policy_run_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                LENGTH[len(b := self.channel.encode())],
                b,
                NULL if (v := self.agent) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL if (v := self.task) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                (array([text(x) for x in self.tags]) if self.tags else END),
                NULL if (v := self.run_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                (POSITIVE[n] if 0 <= (n := self.trainable_calls) < SMALL else int32(n)),
                (b"\x01" if self.ready else NULL),
                (array([text(x) for x in self.reasons]) if self.reasons else END),
                LENGTH[len(b := self.registered_event_id.encode())],
                b,
                time(self.registered_us),
                NULL if (v := self.metadata) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                LENGTH[len(b := self.last_progress_event_id.encode())],
                b,
                time(self.last_progress_us),
                LENGTH[len(b := self.digest.encode())],
                b,
            )
        )

    @classmethod
    def from_datum(cls, d: Mapping[str, Any]) -> "TrajectoryRecord":
        return cls(
            group_id=d["group_id"],
            trajectory_id=d["trajectory_id"],
            status=d["status"],
            status_event_id=d["status_event_id"],
            status_us=d["status_us"],
            reason=d["reason"],
            calls_expected=d["calls_expected"],
            rewards_expected=d["rewards_expected"],
            calls=tuple(d["calls"]),
            calls_left_out=d["calls_left_out"],
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
            registered_us=d["registered_us"],
            metadata=d["metadata"],
            last_progress_event_id=d["last_progress_event_id"],
            last_progress_us=d["last_progress_us"],
            digest=d["digest"],
        )

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[TrajectoryRecord, int]":
        made: Any = new(_TrajectoryRecord)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n, at = read_length(d, at)
        made.status = _TRAJECTORYSTATUS_SYMBOLS[n]
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.status_event_id = d[at : (at := at + n)].decode()
        n, at = read_time(d, at)
        made.status_us = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.reason = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
            made.calls_expected = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.calls_expected = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
            made.rewards_expected = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.rewards_expected = None
        else:
            raise no_branch(n)
        made.calls, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.calls_left_out = n >> 1 ^ -(n & 1)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.branches = n >> 1 ^ -(n & 1)
        made.failed_calls, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        made.rewards, at = ((), at + 1) if d[at] == 0 else read_array(RewardSlot.read, d, at)
        n = d[at]
        at += 1
        if n == 2:
            (made.outcome,) = READ_DOUBLE(d, at)
            at += 8
        elif n == 0:
            made.outcome = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            (made.return_total,) = READ_DOUBLE(d, at)
            at += 8
        elif n == 0:
            made.return_total = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.min_version = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.min_version = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.max_version = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.max_version = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.policy_run_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.policy_run_id = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.channel = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.agent = d[at : (at := at + n)].decode()
        elif n == 0:
            made.agent = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.task = d[at : (at := at + n)].decode()
        elif n == 0:
            made.task = None
        else:
            raise no_branch(n)
        made.tags, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.run_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.run_id = None
        else:
            raise no_branch(n)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.trainable_calls = n >> 1 ^ -(n & 1)
        made.ready = d[at] != 0
        at += 1
        made.reasons, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.registered_event_id = d[at : (at := at + n)].decode()
        n, at = read_time(d, at)
        made.registered_us = n >> 1 ^ -(n & 1)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.metadata = d[at : (at := at + n)].decode()
        elif n == 0:
            made.metadata = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.last_progress_event_id = d[at : (at := at + n)].decode()
        n, at = read_time(d, at)
        made.last_progress_us = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.digest = d[at : (at := at + n)].decode()
        made.__class__ = TrajectoryRecord
        return made, at


_TrajectoryRecord = unguarded(TrajectoryRecord)


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
                LENGTH[len(b := self.group_id.encode())],
                b,
                LENGTH[len(b := self.trajectory_id.encode())],
                b,
                LENGTH[len(b := self.channel.encode())],
                b,
                NULL if (v := self.agent) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL if (v := self.task) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                (array([text(x) for x in self.tags]) if self.tags else END),
                NULL if (v := self.metadata) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[TrajectoryStarted, int]":
        made: Any = new(_TrajectoryStarted)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.group_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.trajectory_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.channel = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.agent = d[at : (at := at + n)].decode()
        elif n == 0:
            made.agent = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.task = d[at : (at := at + n)].decode()
        elif n == 0:
            made.task = None
        else:
            raise no_branch(n)
        made.tags, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.metadata = d[at : (at := at + n)].decode()
        elif n == 0:
            made.metadata = None
        else:
            raise no_branch(n)
        made.__class__ = TrajectoryStarted
        return made, at


_TrajectoryStarted = unguarded(TrajectoryStarted)


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
                LENGTH[len(b := self.model_id.encode())],
                b,
                LENGTH[len(b := self.run_id.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.version) < SMALL else long(n)),
                LENGTH[len(b := self.digest.encode())],
                b,
                (POSITIVE[n] if 0 <= (n := self.bytes_total) < SMALL else long(n)),
                (array([x.binary() for x in self.manifest]) if self.manifest else END),
                NULL if (v := self.offer_url) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                LENGTH[len(b := self.epoch.encode())],
                b,
                NULL if (v := self.checkpoint_uri) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL
                if self.sequence is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.sequence) < SMALL else long(n)),
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[WeightsPublished, int]":
        made: Any = new(_WeightsPublished)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.model_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.run_id = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.version = n >> 1 ^ -(n & 1)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.digest = d[at : (at := at + n)].decode()
        n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
        made.bytes_total = n >> 1 ^ -(n & 1)
        made.manifest, at = ((), at + 1) if d[at] == 0 else read_array(TensorSpec.read, d, at)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.offer_url = d[at : (at := at + n)].decode()
        elif n == 0:
            made.offer_url = None
        else:
            raise no_branch(n)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.epoch = d[at : (at := at + n)].decode()
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.checkpoint_uri = d[at : (at := at + n)].decode()
        elif n == 0:
            made.checkpoint_uri = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.sequence = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.sequence = None
        else:
            raise no_branch(n)
        made.__class__ = WeightsPublished
        return made, at


_WeightsPublished = unguarded(WeightsPublished)


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
                LENGTH[len(b := self.worker_id.encode())],
                b,
                LENGTH[len(b := self.url.encode())],
                b,
                LENGTH[len(b := self.model_id.encode())],
                b,
                LENGTH[len(b := self.model.encode())],
                b,
                _WORKERSTATE[self.state],
                NULL if (v := self.run_id) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
                NULL
                if self.version is None
                else b"\x02" + (POSITIVE[n] if 0 <= (n := self.version) < SMALL else long(n)),
                (POSITIVE[n] if 0 <= (n := self.in_flight) < SMALL else int32(n)),
                DOUBLE(self.report_interval_s),
                (array([text(x) for x in self.capabilities]) if self.capabilities else END),
                NULL if (v := self.detail) is None else b"\x02" + LENGTH[len(b := v.encode())] + b,
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

    @staticmethod
    def read(d: bytes, at: int) -> "tuple[WorkerReported, int]":
        made: Any = new(_WorkerReported)
        made.envelope, at = Envelope.read(d, at)
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.worker_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.url = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.model_id = d[at : (at := at + n)].decode()
        n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
        made.model = d[at : (at := at + n)].decode()
        n, at = read_length(d, at)
        made.state = _WORKERSTATE_SYMBOLS[n]
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.run_id = d[at : (at := at + n)].decode()
        elif n == 0:
            made.run_id = None
        else:
            raise no_branch(n)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at], at + 1) if d[at] < 0x80 else number(d, at)
            made.version = n >> 1 ^ -(n & 1)
        elif n == 0:
            made.version = None
        else:
            raise no_branch(n)
        n, at = (d[at], at + 1) if d[at] < 0x80 else number32(d, at)
        made.in_flight = n >> 1 ^ -(n & 1)
        (made.report_interval_s,) = READ_DOUBLE(d, at)
        at += 8
        made.capabilities, at = ((), at + 1) if d[at] == 0 else read_array(read_text, d, at)
        n = d[at]
        at += 1
        if n == 2:
            n, at = (d[at] >> 1, at + 1) if not d[at] & 0x81 else read_length(d, at)
            made.detail = d[at : (at := at + n)].decode()
        elif n == 0:
            made.detail = None
        else:
            raise no_branch(n)
        made.__class__ = WorkerReported
        return made, at


_WorkerReported = unguarded(WorkerReported)


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

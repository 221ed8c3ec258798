"""The lineage as JSON: one answer for `claw lineage` and the dashboard."""

from collections.abc import Sequence
from dataclasses import replace

from claw_r1.consumers.lineage import requests
from claw_r1.consumers.lineage.trace import DataTrace, TracedBatch, VersionTrace
from claw_r1.datapool.batch.masks import ID_FLAWS
from claw_r1.datapool.runs import PublishedVersion
from claw_r1.eventlog.protocols import Lookup
from claw_r1.schemas.codec import as_dict
from claw_r1.schemas.events import CallCaptured, PlannedStep, PlannedTrajectory
from claw_r1.schemas.json_values import JsonDict


def of_version(name: str, trace: VersionTrace, lookup: Lookup, limit: int | None = None) -> JsonDict:
    """A version with its batches. limit: trajectories at most, in order; what is left out is counted. None: all of them."""
    return {"id": name, "kind": "version", "weights": _version(trace.version), **_batches(lookup, trace.batches, limit)}


def of_data(name: str, traced: DataTrace, lookup: Lookup, limit: int | None = None) -> JsonDict:
    """A group, trajectory or call with its batches, or which runs skipped it. limit: as for a version."""
    answer: JsonDict = {"id": name, "kind": kind_of(name, traced), **_batches(lookup, traced.batches, limit)}
    if not traced.batches:
        answer["skipped"] = [
            dict(zip(("run_id", "group_id", "reason"), skipped, strict=True)) for skipped in traced.skipped
        ]
    return answer


def kind_of(name: str, traced: DataTrace) -> str:
    """group, trajectory or call, the first of them that has this id; unknown when nothing has."""
    trajectories = [trajectory for batch in traced.batches for trajectory in batch.trajectories]
    planned = [(t.group_id, t.trajectory_id, step.call_id) for t in trajectories for step in t.steps]
    for place, kind in enumerate(("group", "trajectory", "call")):
        if any(ids[place] == name for ids in (*planned, *traced.pooled)):
            return kind
    return "unknown" if not traced.skipped else "group"


def _version(version: PublishedVersion) -> JsonDict:
    return {name: getattr(version, name) for name in PublishedVersion.__slots__}


def _batches(lookup: Lookup, batches: Sequence[TracedBatch], limit: int | None) -> JsonDict:
    first_batches = first(batches, limit)
    answers = [_batch(lookup, batch) for batch in first_batches]
    left_out = sum(len(batch.trajectories) for batch in batches) - sum(
        len(batch.trajectories) for batch in first_batches
    )
    return {"batches": answers, "left_out": {"batches": len(batches) - len(first_batches), "trajectories": left_out}}


def first(batches: Sequence[TracedBatch], limit: int | None) -> list[TracedBatch]:
    """Returns as many of the first batches, and of the last of them as many trajectories, as hold `limit` trajectories."""
    chosen: list[TracedBatch] = []
    room = limit
    for batch in batches:
        if room == 0:
            break
        chosen.append(replace(batch, trajectories=batch.trajectories[:room]))
        room = None if room is None else room - len(chosen[-1].trajectories)
    return chosen


def _batch(lookup: Lookup, batch: TracedBatch) -> JsonDict:
    return {
        "run_id": batch.run_id,
        "sequence": batch.sequence,
        "from_version": batch.from_version,
        "made_version": batch.made_version,
        "oldest_version": batch.oldest_version,
        "first_version": batch.versions[0] if batch.versions else None,
        "last_version": batch.versions[-1] if batch.versions else None,
        "trajectories": [_trajectory(lookup, batch, planned) for planned in batch.trajectories],
    }


def _trajectory(lookup: Lookup, batch: TracedBatch, planned: PlannedTrajectory) -> JsonDict:
    facts = requests.calls(lookup, planned.steps)
    questions = requests.questions(facts)
    return {
        "group_id": planned.group_id,
        "trajectory_id": planned.trajectory_id,
        "reward": planned.reward,
        "advantage": planned.advantage,
        "steps": [
            _step(planned, step, facts.get(step.call_id), questions.get(step.call_id)) for step in batch.steps(planned)
        ],
    }


def _step(planned: PlannedTrajectory, step: PlannedStep, call: CallCaptured | None, question: str | None) -> JsonDict:
    return {
        "call_id": step.call_id,
        "trained": step.trained,
        "advantage": planned.advantage if step.advantage is None else step.advantage,
        "reward": step.reward,
        "weights": step.weights,
        "rendered": step.trained and call is not None and bool(ID_FLAWS & {*call.integrity.missing}),
        "position": as_dict(step.position),
        "sampled_by": None if call is None else requests.sampled_by(call.spans),
        "request": None if call is None else _request(call, question),
    }


def _request(call: CallCaptured, question: str | None) -> JsonDict:
    return {
        "event_id": call.envelope.event_id,
        "received_us": call.timings.received_us,
        "agent": call.agent,
        "model_id": call.model_id,
        "worker_id": call.worker_id,
        "idempotency_key": call.idempotency_key,
        "traceparent": call.envelope.traceparent,
        "asked": question,
    }

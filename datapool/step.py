"""Facts about one call: its capture, its rewards, its curation."""

from collections.abc import Mapping
from typing import Any

from datapool import join
from datapool.changed import changed
from datapool.digests import call_digest, row_digest
from datapool.state import SlotKey, StepState
from datapool.trainable import capture_flaws
from schemas.arrays import ITEM_BYTES
from schemas.events import (
    CallCaptured,
    Curation,
    FactPosition,
    RewardAssigned,
    RewardSlot,
    StepCurated,
    StepRecord,
    StepTokens,
)

UNJUDGED: Mapping[str, Any] = {"trainable": None, "quality": None, "tags": (), "note": None}  # each of its own type
"""What a field of a curation is before anybody judged."""


def captured(step: StepState, call: CallCaptured, position: FactPosition) -> StepState:
    """The highest attempt is the call, at its lowest offset; other attempts are only remembered by number.

    The agent went on with the last reply that it got: an earlier attempt was captured and its reply lost on the way.
    """
    attempts = step.attempts if call.attempt in step.attempts else tuple(sorted((*step.attempts, call.attempt)))
    if step.capture is None or (call.attempt, -position.offset) > _rank(step.capture):
        return changed(step, capture=_record(call, position), attempts=attempts)
    return step if attempts is step.attempts else changed(step, attempts=attempts)


def _rank(capture: StepRecord) -> tuple[int, int]:
    assert capture.position is not None  # a capture has one
    return capture.attempt, -capture.position.offset


def _record(call: CallCaptured, position: FactPosition) -> StepRecord:
    versions = [span.version for span in call.spans]
    runs = {span.run_id for span in call.spans}
    return StepRecord(
        group_id=call.group_id,
        trajectory_id=call.trajectory_id,
        call_id=call.call_id,
        attempt=call.attempt,
        position=position,
        digest=call_digest(call),
        prompt_id=call.prompt.full_digest,
        response_id=row_digest(call.response_ids),
        prompt_length=call.prompt.full_length,
        response_length=len(call.response_ids) // ITEM_BYTES,
        base_call_id=call.prompt.base_call_id,
        base_keep=call.prompt.keep,
        spans=call.spans,
        min_version=min(versions, default=None),
        max_version=max(versions, default=None),
        policy_run_id=None if not runs else runs.pop() if len(runs) == 1 else "mixed",
        sampling=call.sampling,
        finish_reason=call.finish_reason,
        status=call.status,
        reasons=capture_flaws(call),
        model_id=call.model_id,
        worker_id=call.worker_id,
        agent=call.agent,
        channel=call.channel,
        tags=call.tags,
        usage=call.usage,
        timings=call.timings,
        integrity=call.integrity,
        run_id=call.envelope.run_id,
    )


def tokens(call: CallCaptured, digest: str) -> StepTokens:
    """The tokens row of a call. digest: `StepRecord.digest` of the same call."""
    return StepTokens(
        group_id=call.group_id,
        trajectory_id=call.trajectory_id,
        call_id=call.call_id,
        attempt=call.attempt,
        prompt=call.prompt,
        response_ids=call.response_ids,
        response_logprobs=call.response_logprobs,
        spans=call.spans,
        digest=digest,
    )


def reward_slot(fact: RewardAssigned) -> tuple[SlotKey, RewardSlot]:
    """The slot that a reward claims; a call id outranks an index."""
    index = fact.step_index if fact.call_id is None else None
    slot = RewardSlot(
        call_id=fact.call_id,
        step_index=index,
        source=fact.source,
        name=fact.name,
        value=fact.value,
        revision=fact.revision,
        event_id=fact.envelope.event_id,
    )
    return SlotKey(index, fact.source, fact.name), slot


def rewarded(step: StepState, key: SlotKey, slot: RewardSlot) -> StepState:
    """A reward of this call."""
    return changed(step, slots={**step.slots, key: join.slot(step.slots.get(key), slot)})


def curated(step: StepState, fact: StepCurated) -> StepState:
    """Field by field the highest (version, value) wins; a field that is cleared has a version and no value."""
    version = f"{fact.revision:020d}/{fact.envelope.event_id}"
    now = step.curation or Curation()
    judged = {"trainable": fact.trainable, "quality": fact.quality, "tags": fact.tags, "note": fact.note}
    given = {name: value for name, value in judged.items() if value is not None}
    given |= {name: UNJUDGED[name] for name in fact.clears if name in UNJUDGED and name not in given}
    won: dict[str, Any]  # a field's value, each of its own type
    won = {name: value for name, value in given.items() if _outranks(now, name, version, value)}
    if given and (version, fact.who) > (max(now.versions.values(), default=""), now.who):
        won["who"] = fact.who
    if not won:
        return step
    versions = dict(sorted({**now.versions, **{name: version for name in won if name in judged}}.items()))
    return changed(step, curation=changed(now, **won, versions=versions))


def _outranks(now: Curation, name: str, version: str, value: object) -> bool:
    stands = (now.versions.get(name, ""), join.content(getattr(now, name)))
    return (version, join.content(value)) > stands

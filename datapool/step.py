"""Facts about one call: its capture, its rewards, its curation."""

from datapool import curation, join
from datapool.changed import changed
from datapool.digests import call_digest, row_digest
from datapool.state import SlotKey, StepState
from datapool.trainable import capture_flaws
from schemas.arrays import ITEM_BYTES
from schemas.events import (
    CallCaptured,
    FactPosition,
    RewardAssigned,
    RewardSlot,
    StepCurated,
    StepRecord,
    StepTokens,
)


def captured(step: StepState, call: CallCaptured, position: FactPosition) -> StepState:
    """The highest completed attempt is the call, at its lowest offset; others are only remembered by number.

    The agent went on with the last reply that it got: an earlier attempt was captured and its reply lost on the way. One
    that broke off is no reply to go on with, so it counts only where none was completed.
    """
    attempts = step.attempts if call.attempt in step.attempts else tuple(sorted((*step.attempts, call.attempt)))
    rank = call.status == "completed", call.attempt, -position.offset
    if step.capture is None or rank > _rank(step.capture):
        return changed(step, capture=_record(call, position), attempts=attempts)
    return step if attempts is step.attempts else changed(step, attempts=attempts)


def _rank(capture: StepRecord) -> tuple[bool, int, int]:
    assert capture.position is not None  # a capture has one
    return capture.status == "completed", capture.attempt, -capture.position.offset


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
        base_digest=call.base_digest,
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
    return changed(step, slots=join.slots(step.slots, key, slot))


def curated(step: StepState, fact: StepCurated) -> StepState:
    """One more judgement, or judgements taken back."""
    return changed(step, curation=curation.judged(step.curation, fact))

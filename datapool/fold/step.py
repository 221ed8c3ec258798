"""The rows and slots made by facts of one call: its capture, the slot of a reward, and its purpose.

A call's purpose is its client's label, else follows from all counted captures of its trajectory: an agent asks for a
title before or beside its first call with tools, and no order, process or restart may decide which of them are its work.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from claw_r1.datapool.digests import call_digest, row_digest
from claw_r1.datapool.fold.state import SlotKey, StepState
from claw_r1.datapool.fold.trainable import capture_flaws
from claw_r1.schemas.arrays import ITEM_BYTES
from claw_r1.schemas.events import (
    CallCaptured,
    FactPosition,
    RewardAssigned,
    RewardSlot,
    ScoringFailed,
    StepRecord,
)
from claw_r1.schemas.http import CallKind, kind_tag

KINDS = (CallKind.MAIN, CallKind.SIDE, CallKind.SUBAGENT)
TAGS = {kind_tag(kind): kind for kind in KINDS}


def captured(step: StepState, call: CallCaptured, position: FactPosition) -> StepState:
    """The completed capture that was received last is the call, at its lowest offset; of others only the number is kept.

    The agent continues with the last reply that it received, from any gateway. Attempts do not identify it: if a
    user repeats a call under its key, SDKs count from 0 again. An interrupted capture is no such reply, so it counts
    only if none was completed.
    """
    received_us = call.timings.received_us
    if step.capture is None:
        return replace(step, capture=_record(call, position), attempts=(call.attempt,), first_received_us=received_us)
    attempts = step.attempts if call.attempt in step.attempts else tuple(sorted((*step.attempts, call.attempt)))
    first_us = min(step.first_received_us, received_us)
    if _rank(call, position) > _rank(step.capture, step.capture.position):
        return replace(step, capture=_record(call, position), attempts=attempts, first_received_us=first_us)
    if attempts is step.attempts and first_us == step.first_received_us:
        return step
    return replace(step, attempts=attempts, first_received_us=first_us)


def _rank(capture: CallCaptured | StepRecord, position: FactPosition | None) -> tuple[bool, int, int, int]:
    """Total among the captures of one call: no two facts have one offset."""
    assert capture.timings is not None  # a capture has them
    assert position is not None
    return capture.status == "completed", capture.timings.received_us, capture.attempt, -position.offset


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
        tags=own_tags(call.tags),
        call_kind=stated_kind(call),
        has_tools=call.has_tools,
        usage=call.usage,
        timings=call.timings,
        integrity=call.integrity,
        run_id=call.envelope.run_id,
    )


def reward_slot(fact: RewardAssigned | ScoringFailed) -> tuple[SlotKey, RewardSlot]:
    """The slot that a reward claims, or a scorer that gave up; a call id outranks an index."""
    failed = fact.reason if isinstance(fact, ScoringFailed) else None
    index = fact.step_index if isinstance(fact, RewardAssigned) and fact.call_id is None else None
    slot = RewardSlot(
        call_id=fact.call_id,
        step_index=index,
        source=fact.source,
        name=fact.name,
        value=fact.value if isinstance(fact, RewardAssigned) else None,
        revision=fact.revision,
        event_id=fact.envelope.event_id,
        occurred_at_us=fact.envelope.occurred_at_us,
        failed=failed,
        verdict=fact.verdict is not None,
    )
    return SlotKey(index, fact.source, fact.name), slot


def stated_kind(call: CallCaptured) -> str | None:
    """Returns the kind that the client gives the call, by a tag or else in its own field; None: nothing that we know."""
    named = (*(TAGS.get(tag) for tag in call.tags), call.call_kind)
    return next((kind for kind in named if kind in KINDS), None)


def own_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Tags without those that name a kind, which only the fold sets in a record."""
    return tuple(tag for tag in tags if tag not in TAGS) if not TAGS.keys().isdisjoint(tags) else tags


def tools_in_use(captures: Iterable[CallCaptured | StepRecord]) -> bool:
    """Returns whether some calls of a trajectory offer tools: one without them is a side call then."""
    return any(capture.has_tools for capture in captures)


def kind_of(stated: str | None, *, has_tools: bool, in_use: bool) -> str:
    """The kind of a captured call. in_use: `tools_in_use` of its trajectory."""
    return stated or (CallKind.SIDE if in_use and not has_tools else CallKind.MAIN)


def tagged(tags: tuple[str, ...], kind: str) -> tuple[str, ...]:
    """Tags of a record: those of the capture, and its kind's."""
    return tags if kind == CallKind.MAIN else (*tags, kind_tag(kind))

"""Records back into states: the exact inverse of `project`. Invariant: no other copy of the state exists."""

from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from claw_r1.datapool.fold.readiness import is_evicted
from claw_r1.datapool.fold.state import (
    COMPLETION,
    Closing,
    Declaration,
    Ending,
    Eviction,
    GroupState,
    Registration,
    SignOfLife,
    SlotKey,
    StepState,
    TrajectoryState,
)
from claw_r1.datapool.fold.step import own_tags
from claw_r1.datapool.fold.trainable import CAPTURE_FLAWS, FOLD_BUG
from claw_r1.schemas.events import Event, GroupRecord, RewardSlot, StepRecord, TrajectoryRecord


def restore(records: Iterable[Event]) -> dict[str, GroupState]:
    """group_id -> state, from the records of any number of groups in any order; tokens are passed over.

    Records of a group must be of one moment (one transaction wrote them): steps without their trajectory, or
    trajectories without their group, are taken as they are.
    """
    steps: dict[tuple[str, str], dict[str, StepState]] = defaultdict(dict)
    trajectories: dict[str, dict[str, TrajectoryRecord]] = defaultdict(dict)
    groups: dict[str, GroupRecord] = {}
    for record in records:
        if isinstance(record, StepRecord):
            steps[record.group_id, record.trajectory_id][record.call_id] = _step(record)
        elif isinstance(record, TrajectoryRecord):
            trajectories[record.group_id][record.trajectory_id] = record
        elif isinstance(record, GroupRecord):
            groups[record.group_id] = record
    return {
        group_id: _group(
            record,
            {
                name: _trajectory(trajectory, steps[group_id, name])
                for name, trajectory in trajectories[group_id].items()
            },
        )
        for group_id, record in groups.items()
    }


def _step(record: StepRecord) -> StepState:
    return StepState(
        capture=None if record.position is None else _capture(record),
        attempts=record.attempts,
        first_received_us=record.first_received_us,
        slots=_slots(slot for slot in record.rewards if slot.step_index is None),
        curation=record.curation,
        buggy=FOLD_BUG in record.reasons,
    )


def _capture(record: StepRecord) -> StepRecord:
    flaws = tuple(reason for reason in record.reasons if reason in CAPTURE_FLAWS)
    return replace(
        record,
        attempts=(),
        first_received_us=0,
        trainable=False,
        reasons=flaws,
        tags=own_tags(record.tags),
        rewards=(),
        reward_total=None,
        curation=None,
        task=None,
    )


def _slots(slots: Iterable[RewardSlot]) -> dict[SlotKey, RewardSlot]:
    return {SlotKey(slot.step_index, slot.source, slot.name): slot for slot in slots}


def _trajectory(record: TrajectoryRecord, steps: dict[str, StepState]) -> TrajectoryState:
    slots = _slots(record.rewards)
    completion = slots.pop(COMPLETION, None)
    return TrajectoryState(
        ending=Ending(
            record.status,
            record.status_us,
            record.status_event_id,
            record.reason,
            record.calls_expected,
            record.rewards_expected,
            None if completion is None else completion.value,
            record.status_revision,
        ),
        registration=Registration(
            record.registered_us,
            record.registered_event_id,
            record.task,
            record.tags,
            record.metadata,
            record.idle_s,
            record.registered_run_id,
            record.registered_revision,
        ),
        steps=steps,
        failed_calls=frozenset(record.failed_calls),
        slots=slots,
        channel=record.channel,
        agent=record.agent,
        calls_run_id=record.calls_run_id,
        progress=SignOfLife(record.last_progress_us, record.last_progress_event_id),
        buggy=FOLD_BUG in record.reasons,
    )


def _group(record: GroupRecord, trajectories: dict[str, TrajectoryState]) -> GroupState:
    return GroupState(
        group_id=record.group_id,
        eviction=_eviction(record) if is_evicted(record) else None,
        declaration=_declaration(record) if record.declared else None,
        closing=Closing(record.closed_us, record.closed_event_id, record.closed_members) if record.closed else None,
        trajectories=trajectories,
        channel=record.channel,
        calls_run_id=record.calls_run_id,
        progress=SignOfLife(record.last_progress_us, record.last_progress_event_id),
        buggy=FOLD_BUG in record.reasons,
    )


def _eviction(record: GroupRecord) -> Eviction:
    return Eviction(record.evicted_us, record.evicted_event_id, record.evicted_reason)


def _declaration(record: GroupRecord) -> Declaration:
    return Declaration(
        record.declared_us,
        record.declared_event_id,
        record.expected_size,
        record.task,
        record.deadline_us,
        record.agent,
        record.tags,
        record.ordinal,
        record.declared_run_id,
        record.declared_revision,
    )

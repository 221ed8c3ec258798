"""What the pool says about a group: state -> records, and which of them changed since an earlier state.

Invariant: a record is a function of the state alone; sums are exact (`math.fsum`) and taken over sorted things, so equal
states give equal bytes. Tokens are not projected: they pass by the state and go from the fact to their row.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from datapool.fold import bounds, forest, merge
from datapool.fold.digests import row_digest, rows_digest
from datapool.fold.readiness import counted_calls, group_reasons, trajectory_reasons
from datapool.fold.state import Ending, GroupState, Registration, SlotKey, StepState, TrajectoryState
from datapool.fold.step import kind_of, tagged, tools_in_use
from datapool.fold.trainable import reasons
from schemas.codec import encode
from schemas.events import GroupMember, GroupRecord, RewardSlot, StepRecord, StepTokens, TrajectoryRecord
from schemas.http import CallKind
from schemas.keys import group_key, step_key, tokens_key, trajectory_key
from schemas.topics import GROUPS, STEPS, TRAJECTORIES, Topic

PoolRecord = StepRecord | StepTokens | TrajectoryRecord | GroupRecord


class RowKey(NamedTuple):
    """A key in its topic; a group's key may equal a trajectory's."""

    topic: str
    """`Topic.name`."""
    key: bytes


class PoolRow(NamedTuple):
    """A record and its wire bytes, which are needed for the digest anyway."""

    record: PoolRecord
    value: bytes


Rows = dict[RowKey, PoolRow | None]
"""None is a tombstone."""


class Surroundings(NamedTuple):
    """What a step's record takes from its trajectory."""

    by_index: tuple[RewardSlot, ...]
    """Rewards by index that mean this call at present."""
    chain_known: bool
    task: str | None
    kind: str
    """What the call is for, as all calls of the trajectory tell."""


class StepImage(Struct, frozen=True):
    """What was written of a step, and from what."""

    state: StepState
    around: Surroundings
    digest: str
    trainable: bool
    total: float | None


class TrajectoryImage(Struct, frozen=True):
    """What was written of a trajectory."""

    state: TrajectoryState
    member: GroupMember
    steps: Mapping[str, StepImage] = {}


class GroupImage(Struct, frozen=True):
    """What was written of a group: with it a later state is written as a difference."""

    state: GroupState
    record: GroupRecord
    trajectories: Mapping[str, TrajectoryImage] = {}


def project(state: GroupState) -> dict[RowKey, PoolRecord]:
    """All records of a group but its tokens."""
    rows = changes(None, state)[1]
    return {key: row.record for key, row in rows.items() if row is not None}


def image(state: GroupState) -> GroupImage:
    """The image of a state that is already written, for example of one that was just restored."""
    return changes(None, state)[0]


def changes(before: GroupImage | None, state: GroupState) -> tuple[GroupImage, Rows]:
    """The new image and the rows that differ from `before`; of an erased step both rows, as tombstones."""
    rows: Rows = {}
    old = before.trajectories if before is not None else {}
    images = {
        trajectory_id: _trajectory(state.group_id, trajectory_id, now, old.get(trajectory_id), rows)
        for trajectory_id, now in state.trajectories.items()
    }
    record = _group_record(state, images)
    _write(rows, GROUPS, group_key(state.group_id), record)
    return GroupImage(state, record, images), rows


def _write(rows: Rows, topic: Topic, key: bytes, record: PoolRecord) -> str:
    value = encode(record)
    rows[RowKey(topic.name, key)] = PoolRow(record, value)
    return row_digest(value)


def _trajectory(
    group_id: str, trajectory_id: str, now: TrajectoryState, before: TrajectoryImage | None, rows: Rows
) -> TrajectoryImage:
    if before is not None and before.state is now:
        return before
    old = before.steps if before is not None else {}
    for call_id in old.keys() - now.steps.keys():
        rows[RowKey(STEPS.name, step_key(group_id, trajectory_id, call_id))] = None
        rows[RowKey(STEPS.name, tokens_key(group_id, trajectory_id, call_id))] = None
    calls = call_order(now)
    by_index = rewards_by_index(now, calls)
    captures = {call_id: step.capture for call_id, step in now.steps.items() if step.capture is not None}
    whole_chains, in_use = forest.whole_chains(captures), tools_in_use(captures.values())
    steps = {
        call_id: _step(
            (group_id, trajectory_id, call_id),
            step,
            Surroundings(
                by_index.get(call_id, ()), call_id in whole_chains, now.registration.task, _kind(step, in_use=in_use)
            ),
            old.get(call_id),
            rows,
        )
        for call_id, step in now.steps.items()
    }
    record = _trajectory_record(group_id, trajectory_id, now, calls, steps)
    digest = _write(rows, TRAJECTORIES, trajectory_key(group_id, trajectory_id), record)
    return TrajectoryImage(now, _member(record, digest), steps)


def _step(
    ids: tuple[str, str, str],
    state: StepState,
    around: Surroundings,
    before: StepImage | None,
    rows: Rows,
) -> StepImage:
    if before is not None and before.state is state and before.around == around:
        return before
    record = _step_record(ids, state, around)
    digest = _write(rows, STEPS, step_key(*ids), record)
    return StepImage(state, around, digest, record.trainable, record.reward_total)


def _kind(step: StepState, *, in_use: bool) -> str:
    if step.capture is None:
        return CallKind.MAIN
    return kind_of(step.capture.call_kind, has_tools=step.capture.has_tools, in_use=in_use)


def call_order(now: TrajectoryState) -> tuple[str, ...]:
    """Captured calls by (first received, call_id)."""
    captured = ((step.first_received_us, call_id) for call_id, step in now.steps.items() if step.capture is not None)
    return tuple(call_id for _, call_id in sorted(captured))


def rewards_by_index(now: TrajectoryState, calls: Sequence[str]) -> dict[str, tuple[RewardSlot, ...]]:
    """call_id -> the slots by index that mean it at present, sorted. An index beyond the calls means none.

    An index counts calls as a completion does; of a call with several choices it means the first.
    """
    by_call: dict[str, tuple[RewardSlot, ...]] = {}
    indexed = [slot for slot in sorted_slots(now.slots.values()) if slot.step_index is not None]
    counted = counted_calls(calls) if indexed else []
    for slot in indexed:
        if slot.step_index is not None and slot.step_index < len(counted):
            call_id = counted[slot.step_index]
            by_call[call_id] = (*by_call.get(call_id, ()), slot)
    return by_call


def sorted_slots(slots: Collection[RewardSlot]) -> tuple[RewardSlot, ...]:
    """Slots in the order of records."""
    if len(slots) < 2:
        return tuple(slots)
    return tuple(
        sorted(slots, key=lambda slot: (-1 if slot.step_index is None else slot.step_index, slot.source, slot.name))
    )


def _total(slots: Iterable[RewardSlot]) -> float | None:
    values = [slot.value for slot in slots if slot.value is not None]
    return math.fsum(values) if values else None


def winners(own: Iterable[RewardSlot], by_index: Iterable[RewardSlot]) -> list[RewardSlot]:
    """One slot per (source, name): a reward by index and one by id of the same call are one subject."""
    won: dict[SlotKey, RewardSlot] = {}
    for slot in (*own, *by_index):
        key = SlotKey(None, slot.source, slot.name)
        won[key] = merge.slot(won.get(key), slot)
    return list(won.values())


def _step_record(ids: tuple[str, str, str], state: StepState, around: Surroundings) -> StepRecord:
    group_id, trajectory_id, call_id = ids
    blank = state.capture or StepRecord(group_id=group_id, trajectory_id=trajectory_id, call_id=call_id)
    why_not = reasons(state, around.chain_known)
    own = sorted_slots(state.slots.values())
    return replace(
        blank,
        attempts=state.attempts,
        first_received_us=state.first_received_us,
        trainable=not why_not,
        reasons=why_not,
        rewards=own + around.by_index,
        reward_total=_total(winners(own, around.by_index) if around.by_index else own),
        curation=state.curation,
        task=around.task,
        tags=tagged(blank.tags, around.kind),
    )


def _trajectory_record(
    group_id: str, trajectory_id: str, now: TrajectoryState, calls: tuple[str, ...], steps: Mapping[str, StepImage]
) -> TrajectoryRecord:
    captures = {call_id: capture for call_id in calls if (capture := now.steps[call_id].capture) is not None}
    slots = sorted_slots((*now.slots.values(), *now.ending.slots))
    outcome = _total([slot for slot in slots if slot.step_index is None])
    parts = [part for part in (outcome, *[steps[call_id].total for call_id in calls]) if part is not None]
    trainable = sum([steps[call_id].trainable for call_id in calls])
    listed = bounds.within(calls, bounds.CALL_BYTES, bounds.TRAJECTORY_CALLS_BYTES_MAX)
    why_not = trajectory_reasons(now, calls, trainable, outcome is not None, left_out=len(calls) - len(listed))
    runs = sorted({capture.policy_run_id for capture in captures.values() if capture.policy_run_id is not None})
    return TrajectoryRecord(
        group_id=group_id,
        trajectory_id=trajectory_id,
        **_life(now.ending, now.registration),
        calls=tuple(listed),
        offsets=tuple(position.offset for call_id in listed if (position := captures[call_id].position) is not None),
        calls_left_out=len(calls) - len(listed),
        branches=forest.branches(captures),
        failed_calls=tuple(sorted(now.failed_calls)),
        rewards=slots,
        outcome=outcome,
        return_total=math.fsum(parts) if parts else None,
        min_version=min(_known(capture.min_version for capture in captures.values()), default=None),
        max_version=max(_known(capture.max_version for capture in captures.values()), default=None),
        policy_run_id=None if not runs else runs[0] if len(runs) == 1 else "mixed",
        channel=now.channel,
        agent=now.agent,
        run_id=now.run_id,
        calls_run_id=now.calls_run_id,
        trainable_calls=trainable,
        ready=not why_not,
        reasons=why_not,
        last_progress_event_id=now.progress.event_id,
        last_progress_us=now.progress.occurred_at_us,
        digest=rows_digest([(call_id, step.digest) for call_id, step in steps.items()]),
    )


def _life(ending: Ending, registration: Registration) -> dict[str, Any]:  # fields of a record, by name
    """How it began and ended."""
    return {
        "status": ending.status,
        "status_event_id": ending.event_id,
        "status_us": ending.occurred_at_us,
        "status_revision": ending.revision,
        "reason": ending.reason,
        "calls_expected": ending.calls,
        "rewards_expected": ending.rewards,
        "task": registration.task,
        "tags": registration.tags,
        "registered_event_id": registration.event_id,
        "registered_us": registration.occurred_at_us,
        "registered_revision": registration.revision,
        "registered_run_id": registration.run_id,
        "idle_s": registration.idle_s,
        "metadata": registration.metadata,
    }


def _member(record: TrajectoryRecord, digest: str) -> GroupMember:
    return GroupMember(
        trajectory_id=record.trajectory_id,
        status=record.status,
        ready=record.ready,
        return_total=record.return_total,
        min_version=record.min_version,
        max_version=record.max_version,
        digest=digest,
    )


def members(group: GroupState, images: Mapping[str, TrajectoryImage]) -> tuple[tuple[GroupMember, ...], int]:
    """Who counts in a group, sorted, and how many more the record has no room for.

    Once it is closed those that its closing lists, before that everybody who showed itself.
    """
    if group.closing is not None:
        return tuple(_listed(name, images.get(name)) for name in group.closing.members), 0
    names = [name for name, image_of_member in images.items() if image_of_member.state.known]
    fitting = bounds.fit_in_group(names)
    return tuple(images[name].member for name in fitting), len(names) - len(fitting)


def _listed(name: str, image: TrajectoryImage | None) -> GroupMember:
    """A member of a closed group; one that never showed itself is `unknown`, also where a reward knows its name."""
    if image is None:
        return GroupMember(trajectory_id=name, status="unknown", ready=False, digest="")
    return image.member if image.state.known else replace(image.member, status="unknown")


def _group_record(group: GroupState, images: Mapping[str, TrajectoryImage]) -> GroupRecord:
    counted, left_out = members(group, images)
    why_not = group_reasons(group, counted, left_out=left_out)
    ready = [member for member in counted if member.ready]
    returns = [member.return_total for member in ready if member.return_total is not None]
    judged = bool(ready) and len(returns) == len(ready)
    declared = group.declaration
    return GroupRecord(
        group_id=group.group_id,
        declared=declared is not None,
        declared_event_id=declared.event_id if declared else "",
        declared_us=declared.occurred_at_us if declared else 0,
        declared_revision=declared.revision if declared else 0,
        declared_run_id=declared.run_id if declared else None,
        expected_size=declared.expected_size if declared else None,
        channel=group.channel,
        task=declared.task if declared else None,
        deadline_us=declared.deadline_us if declared else None,
        agent=declared.agent if declared else None,
        tags=declared.tags if declared else (),
        ordinal=declared.ordinal if declared else None,
        run_id=group.run_id,
        calls_run_id=group.calls_run_id,
        members=counted,
        members_left_out=left_out,
        closed=group.closing is not None,
        closed_event_id=group.closing.event_id if group.closing else "",
        closed_us=group.closing.occurred_at_us if group.closing else 0,
        closed_members=group.closing.members if group.closing else (),
        ready=not why_not,
        reasons=why_not,
        reward_mean=math.fsum(returns) / len(returns) if judged else None,
        reward_std=_deviation(returns) if judged and len(returns) > 1 else None,
        zero_variance=judged and len(returns) > 1 and min(returns) == max(returns),
        min_version=min(_known(member.min_version for member in ready), default=None),
        max_version=max(_known(member.max_version for member in ready), default=None),
        last_progress_event_id=group.progress.event_id,
        last_progress_us=group.progress.occurred_at_us,
        digest=rows_digest([(member.trajectory_id, member.digest) for member in counted]),
    )


def _deviation(values: Sequence[float]) -> float:
    """Standard deviation with ddof 1, of exact sums; exactly 0 of equal values."""
    if min(values) == max(values):
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _known(versions: Iterable[int | None]) -> list[int]:
    return [version for version in versions if version is not None]

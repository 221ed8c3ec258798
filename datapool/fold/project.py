"""The projection of a group's state onto the pool's records: state -> records, and which of them changed since an
earlier state.

Invariant: a record is a function of the state alone; sums are exact (`math.fsum`) and taken over sorted things, so equal
states give equal bytes. Tokens are not projected: they pass by the state and go from the fact to their row.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from claw_r1.datapool.digests import row_digest, tie, ties_digest
from claw_r1.datapool.fold import bounds, forest, merge
from claw_r1.datapool.fold.forest import Forest
from claw_r1.datapool.fold.readiness import group_reasons, trajectory_reasons
from claw_r1.datapool.fold.state import Ending, GroupState, Registration, StepState, TrajectoryState
from claw_r1.datapool.fold.step import kind_of, tagged
from claw_r1.datapool.fold.tallies import CallsTally, MembersTally, StepImage, StepsTally, Surroundings
from claw_r1.datapool.fold.trainable import reasons
from claw_r1.datapool.immutable_map import differing
from claw_r1.schemas.codec import NOTHING_PACKED, Packed, encode
from claw_r1.schemas.events import GroupMember, GroupRecord, RewardSlot, StepRecord, TrajectoryRecord
from claw_r1.schemas.http import CallKind
from claw_r1.schemas.keys import group_key, step_key, trajectory_key
from claw_r1.schemas.topics import GROUPS, STEPS, TRAJECTORIES, Topic

PoolRecord = StepRecord | TrajectoryRecord | GroupRecord


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


class TrajectoryImage(Struct, frozen=True):
    """The image of a trajectory as it was last written."""

    state: TrajectoryState = TrajectoryState()
    member: GroupMember | None = None
    """Also of one that no group counts; None: nothing was written."""
    steps: Mapping[str, StepImage] = {}
    calls: CallsTally = CallsTally()
    tally: StepsTally = StepsTally()
    forest: Forest = Forest()
    by_index: Mapping[str, tuple[RewardSlot, ...]] = {}
    """`rewards_by_index`."""


class GroupImage(Struct, frozen=True):
    """The image of a group as it was last written: with it a later state is written as a difference."""

    state: GroupState
    record: GroupRecord
    trajectories: Mapping[str, TrajectoryImage] = {}
    tally: MembersTally = MembersTally()
    """Over all that count, also where the record has no room for some."""


UNWRITTEN = TrajectoryImage()


def project(state: GroupState) -> dict[RowKey, PoolRecord]:
    """All records of a group but its tokens."""
    rows = changes(None, state)[1]
    return {key: row.record for key, row in rows.items() if row is not None}


def image(state: GroupState) -> GroupImage:
    """The image of a state that is already written, as of one that was just restored."""
    return changes(None, state)[0]


def changes(before: GroupImage | None, state: GroupState) -> tuple[GroupImage, Rows]:
    """The new image and the rows that differ from `before`, which an earlier state left; of an erased step both rows, as
    tombstones."""
    if state.eviction is not None:
        return _erased(before, state)
    rows: Rows = {}
    old = before.trajectories if before is not None else {}
    touched = differing(before.state.trajectories if before is not None else {}, state.trajectories)
    new = {
        name: _trajectory(state.group_id, name, state.trajectories[name], old.get(name, UNWRITTEN), rows)
        for name in touched
    }
    images = {**old, **new}
    tally = _members_tally(before, state, images, touched)
    record, packed = _group_record(state, tally)
    _write(rows, GROUPS, group_key(state.group_id), record, packed)
    return GroupImage(state, record, images, tally), rows


def _erased(before: GroupImage | None, state: GroupState) -> tuple[GroupImage, Rows]:
    """The image of an evicted group, the stub that is left of it, and all its other rows as tombstones."""
    rows: Rows = {}
    for name, trajectory in before.trajectories.items() if before is not None else ():
        rows[RowKey(TRAJECTORIES.name, trajectory_key(state.group_id, name))] = None
        for call_id in trajectory.steps:
            rows[RowKey(STEPS.name, step_key(state.group_id, name, call_id))] = None
    record, packed = _group_record(state, MembersTally())
    _write(rows, GROUPS, group_key(state.group_id), record, packed)
    return GroupImage(state, record), rows


def _write(rows: Rows, topic: Topic, key: bytes, record: PoolRecord, packed: Packed = NOTHING_PACKED) -> bytes:
    value = encode(record, packed)
    rows[RowKey(topic.name, key)] = PoolRow(record, value)
    return value


def _trajectory(
    group_id: str, trajectory_id: str, now: TrajectoryState, before: TrajectoryImage, rows: Rows
) -> TrajectoryImage:
    if now.evicted:
        for call_id in before.steps:
            rows[RowKey(STEPS.name, step_key(group_id, trajectory_id, call_id))] = None
        before = UNWRITTEN
    image = _steps(group_id, trajectory_id, now, before, rows)
    record, packed = _trajectory_record(group_id, trajectory_id, image)
    value = _write(rows, TRAJECTORIES, trajectory_key(group_id, trajectory_id), record, packed)
    return replace(image, member=_member(record, row_digest(value)))


def _steps(
    group_id: str, trajectory_id: str, now: TrajectoryState, before: TrajectoryImage, rows: Rows
) -> TrajectoryImage:
    """The image of all but the trajectory's own row; only steps that a change reaches are computed again."""
    touched = differing(before.state.steps, now.steps)
    was, captures = _captures(before.state), _captures(now)
    captured = [call_id for call_id in touched if was(call_id) is not captures(call_id)]
    grown = forest.grown(before.forest, was, captures, captured)
    whole = forest.whole_chains(grown, captures, captured, lambda call_id: _chain_known(before, call_id))
    calls = before.calls.changed(
        {call_id: (before.state.steps.get(call_id), now.steps[call_id]) for call_id in touched}
    )
    in_use, by_index = bool(calls.numbers.get("tools")), rewards_by_index(now, calls)
    if in_use != bool(before.calls.numbers.get("tools")) or now.registration.task != before.state.registration.task:
        reached = set(now.steps)
    else:
        moved = {call_id for call_id, is_whole in whole.items() if is_whole != _chain_known(before, call_id)}
        indexed = {one for one in {*by_index, *before.by_index} if by_index.get(one) != before.by_index.get(one)}
        reached = {*touched, *moved, *indexed}
    steps = dict(before.steps)
    for call_id in reached:
        step = now.steps[call_id]
        is_whole = whole[call_id] if call_id in whole else _chain_known(before, call_id)
        around = Surroundings(by_index.get(call_id, ()), is_whole, now.registration.task, _kind(step, in_use=in_use))
        steps[call_id] = _step((group_id, trajectory_id, call_id), step, around, before.steps.get(call_id), rows)
    written = {call_id: (before.steps.get(call_id), steps[call_id]) for call_id in reached}
    return TrajectoryImage(now, None, steps, calls, before.tally.changed(written), grown, by_index)


def _captures(state: TrajectoryState) -> forest.CaptureOf:
    return lambda call_id: None if (step := state.steps.get(call_id)) is None else step.capture


def _chain_known(before: TrajectoryImage, call_id: str) -> bool:
    step = before.steps.get(call_id)
    return step is not None and step.around.chain_known


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
    value = _write(rows, STEPS, step_key(*ids), record)
    return StepImage(state, around, tie(ids[-1], row_digest(value)), record.trainable, record.reward_total)


def _kind(step: StepState, *, in_use: bool) -> str:
    if step.capture is None:
        return CallKind.MAIN
    return kind_of(step.capture.call_kind, has_tools=step.capture.has_tools, in_use=in_use)


def rewards_by_index(now: TrajectoryState, calls: CallsTally) -> dict[str, tuple[RewardSlot, ...]]:
    """call_id -> the slots by index that mean it at present, sorted. An index beyond the calls means none.

    An index counts calls as a completion does; of a call with several choices it means the first.
    """
    by_call: dict[str, tuple[RewardSlot, ...]] = {}
    indexed = [slot for slot in merge.sorted_slots(now.slots.values()) if slot.step_index is not None]
    counted = calls.counted if indexed else ()
    for slot in indexed:
        if slot.step_index is not None and slot.step_index < len(counted):
            call_id = counted[slot.step_index]
            by_call[call_id] = (*by_call.get(call_id, ()), slot)
    return by_call


def _step_record(ids: tuple[str, str, str], state: StepState, around: Surroundings) -> StepRecord:
    group_id, trajectory_id, call_id = ids
    blank = state.capture or StepRecord(group_id=group_id, trajectory_id=trajectory_id, call_id=call_id)
    why_not = reasons(state, around.chain_known)
    own = merge.sorted_slots(state.slots.values())
    return replace(
        blank,
        attempts=state.attempts,
        first_received_us=state.first_received_us,
        trainable=not why_not,
        reasons=why_not,
        rewards=own + around.by_index,
        reward_total=merge.total(merge.winners(own, around.by_index) if around.by_index else own),
        curation=state.curation,
        task=around.task,
        tags=tagged(blank.tags, around.kind),
    )


def _trajectory_record(group_id: str, trajectory_id: str, image: TrajectoryImage) -> tuple[TrajectoryRecord, Packed]:
    """With the lists that are encoded already."""
    now, calls, tally = image.state, image.calls, image.tally
    slots = merge.sorted_slots((*now.slots.values(), *now.ending.slots))
    outcome = merge.total([slot for slot in slots if slot.step_index is None])
    parts = [*([] if outcome is None else [outcome]), *tally.totals.values()]
    captured, listed = len(calls.calls), len(calls.calls)
    if calls.numbers.get("bytes", 0) >= bounds.TRAJECTORY_CALLS_BYTES_MAX:
        listed = len(bounds.within(calls.ids, bounds.CALL_BYTES, bounds.TRAJECTORY_CALLS_BYTES_MAX))
    why_not = trajectory_reasons(
        now,
        calls.numbers,
        counted=0 if now.ending.calls is None else len(calls.counted),
        trainable=tally.trainable,
        has_outcome=outcome is not None,
        left_out=captured - listed,
    )
    runs = sorted(calls.runs)
    record = TrajectoryRecord(
        group_id=group_id,
        trajectory_id=trajectory_id,
        **_life(now.ending, now.registration),
        calls=calls.calls.column(0, listed),
        offsets=calls.calls.column(1, listed),
        calls_left_out=captured - listed,
        branches=captured - len(image.forest.continued),
        failed_calls=tuple(sorted(now.failed_calls)),
        rewards=slots,
        outcome=outcome,
        return_total=math.fsum(parts) if parts else None,
        min_version=min(calls.lowest, default=None),
        max_version=max(calls.highest, default=None),
        policy_run_id=None if not runs else runs[0] if len(runs) == 1 else "mixed",
        channel=now.channel,
        agent=now.agent,
        run_id=now.run_id,
        calls_run_id=now.calls_run_id,
        trainable_calls=tally.trainable,
        ready=not why_not,
        reasons=why_not,
        last_progress_event_id=now.progress.event_id,
        last_progress_us=now.progress.occurred_at_us,
        digest=ties_digest(tally.ties.joined(0)),
    )
    return record, {"calls": calls.calls.packed(2, listed), "offsets": calls.calls.packed(3, listed)}


def _life(ending: Ending, registration: Registration) -> dict[str, Any]:  # fields of a record, by name
    """Returns the fields of a record that tell how a trajectory began and ended."""
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


def _members_tally(
    before: GroupImage | None, group: GroupState, images: Mapping[str, TrajectoryImage], touched: Collection[str]
) -> MembersTally:
    """Over the counted members of a group. touched: the changed trajectories.

    Once it is closed, those in its closing count; before that, all with an event.
    """
    tally, closing = MembersTally(), group.closing
    names: Collection[str] = images if closing is None else closing.members
    if before is not None and before.state.closing is closing:
        tally, names = (
            before.tally,
            touched if closing is None else [name for name in touched if before.tally.member(name)],
        )
    changes: dict[str, tuple[GroupMember | None, GroupMember | None]] = {}
    for name in names:
        now = _member_of(images[name]) if closing is None else _listed(name, images.get(name))
        changes[name] = tally.member(name), now
    return tally.changed(changes)


def _member_of(image: TrajectoryImage) -> GroupMember | None:
    return image.member if image.state.known else None


def _listed(name: str, image: TrajectoryImage | None) -> GroupMember:
    """A member of a closed group; one that never showed itself is `unknown`, also where a reward knows its name."""
    if image is None or image.member is None:
        return GroupMember(trajectory_id=name, status="unknown", ready=False, digest="")
    return image.member if image.state.known else replace(image.member, status="unknown")


def _group_record(group: GroupState, tally: MembersTally) -> tuple[GroupRecord, Packed]:
    """With the list that is encoded already."""
    everybody = len(tally.members)
    if group.closing is None:
        tally = _within_bounds(tally)
    listed = len(tally.members)
    left_out = everybody - listed
    why_not = group_reasons(group, tally.numbers, left_out=left_out)
    spread, declared, eviction = tally.spread, group.declaration, group.eviction
    record = GroupRecord(
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
        members=tally.members.column(0),
        members_left_out=left_out,
        closed=group.closing is not None,
        closed_event_id=group.closing.event_id if group.closing else "",
        closed_us=group.closing.occurred_at_us if group.closing else 0,
        closed_members=group.closing.members if group.closing else (),
        evicted_event_id=eviction.event_id if eviction else "",
        evicted_us=eviction.occurred_at_us if eviction else 0,
        evicted_reason=eviction.reason if eviction else "",
        ready=not why_not,
        reasons=why_not,
        reward_mean=spread.mean,
        reward_std=spread.deviation,
        zero_variance=spread.equal,
        min_version=min(tally.lowest, default=None),
        max_version=max(tally.highest, default=None),
        last_progress_event_id=group.progress.event_id,
        last_progress_us=group.progress.occurred_at_us,
        digest="" if eviction else ties_digest(tally.members.joined(2)),
    )
    return record, {"members": tally.members.packed(1, listed)}


def _within_bounds(tally: MembersTally) -> MembersTally:
    """Over those members that a record has room for."""
    if tally.numbers.get("bytes", 0) < bounds.GROUP_MEMBERS_BYTES_MAX:
        return tally
    fitting = bounds.fit_in_group(tally.members.keys())
    return MembersTally().changed(
        {name: (None, member) for name, member in zip(fitting, tally.members.column(0), strict=False)}
    )

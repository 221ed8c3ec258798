"""`fold`: one fact into the state of its group. A function of (state, fact, position),
commutative and idempotent."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from claw_r1.datapool.fold import merge, trajectory
from claw_r1.datapool.fold.state import (
    NO_PROGRESS,
    Closing,
    Declaration,
    Eviction,
    Fact,
    GroupState,
    SignOfLife,
    StepState,
    TrajectoryState,
)
from claw_r1.datapool.immutable_map import grown
from claw_r1.schemas.events import (
    CallCaptured,
    CallFailed,
    Event,
    FactPosition,
    GroupClosed,
    GroupEvicted,
    GroupOpened,
    RewardAssigned,
    ScoringFailed,
    StepCurated,
    TrajectoryAbandoned,
    TrajectoryCompleted,
    TrajectoryEvicted,
    TrajectoryStarted,
)

Handler = Callable[[TrajectoryState, Any], trajectory.TrajectoryFields]  # each takes the fact type it stands for

ON_TRAJECTORY: dict[type[Event], Handler] = {
    CallFailed: trajectory.call_failed,
    RewardAssigned: trajectory.rewarded,
    ScoringFailed: trajectory.rewarded,
    StepCurated: trajectory.curated,
    TrajectoryStarted: trajectory.started,
    TrajectoryCompleted: trajectory.completed,
    TrajectoryAbandoned: trajectory.abandoned,
}
DECISIONS = frozenset({TrajectoryAbandoned, GroupClosed, TrajectoryEvicted})
"""Decisions that a reactor may have made are no sign of life: it must not change the id of
its own next decision."""
NEW_TRAJECTORY = TrajectoryState()


def fold(state: GroupState | None, fact: Fact, position: FactPosition) -> GroupState:
    """The group after one more fact, one that `validation.usable` let through."""
    group = state or GroupState(fact.group_id)
    if isinstance(fact, GroupEvicted):
        return _evicted(group, fact)
    if group.eviction is not None:
        return _of_evicted(group, fact)
    progress = _progress(fact)
    if isinstance(fact, GroupOpened):
        group = _opened(group, fact)
    elif isinstance(fact, GroupClosed):
        group = _closed(group, fact)
    else:
        before = group.trajectories.get(fact.trajectory_id, NEW_TRAJECTORY)
        after = _in_trajectory(before, fact, position, progress)
        if after is not before:
            return _observed(group, fact, progress, grown(group.trajectories, fact.trajectory_id, after))
    return _observed(group, fact, progress, group.trajectories)


def _in_trajectory(
    now: TrajectoryState,
    fact: Any,  # a TrajectoryFact
    position: FactPosition,
    progress: SignOfLife,
) -> TrajectoryState:
    if isinstance(fact, TrajectoryEvicted):
        return trajectory.evicted(now, fact)
    if now.evicted:
        return now
    if isinstance(fact, CallCaptured):
        fields = trajectory.called(now, fact, position)
    else:
        fields = ON_TRAJECTORY[type(fact)](now, fact)
    run_id = _calls_run(now.calls_run_id, fact)
    return replace(now, **fields, calls_run_id=run_id, progress=max(now.progress, progress))


def _calls_run(now: str | None, fact: Fact) -> str | None:
    """The first by name that captured calls name; others speak about them, and for whatever run they like."""
    return merge.first(now, fact.envelope.run_id) if isinstance(fact, CallCaptured) else now


def _observed(
    group: GroupState, fact: Fact, progress: SignOfLife, trajectories: Mapping[str, TrajectoryState]
) -> GroupState:
    return replace(
        group,
        trajectories=trajectories,
        channel=merge.channel(group.channel, getattr(fact, "channel", "")),
        calls_run_id=_calls_run(group.calls_run_id, fact),
        progress=max(group.progress, progress),
    )


def _progress(fact: Fact) -> SignOfLife:
    if type(fact) in DECISIONS:
        return NO_PROGRESS
    return SignOfLife(fact.envelope.occurred_at_us, fact.envelope.event_id)


def _evicted(group: GroupState, fact: GroupEvicted) -> GroupState:
    """The group reduced to its eviction, its run, and its place in an order of tasks."""
    eviction = Eviction(fact.envelope.occurred_at_us, fact.envelope.event_id, fact.reason)
    if group.eviction is not None:
        return replace(group, eviction=max(group.eviction, eviction, key=lambda word: word.rank))
    declaration = None if group.declaration is None else group.declaration.stub
    return GroupState(group.group_id, eviction, declaration, calls_run_id=group.calls_run_id)


def _of_evicted(group: GroupState, fact: Fact) -> GroupState:
    """After a fact later than the eviction, or an earlier one that arrives now: it updates the stub's fields."""
    if isinstance(fact, GroupOpened):
        group = _opened(group, fact)
        return replace(group, declaration=group.declaration and group.declaration.stub)
    return replace(group, calls_run_id=_calls_run(group.calls_run_id, fact))


def _opened(group: GroupState, fact: GroupOpened) -> GroupState:
    at_us, event_id = fact.envelope.occurred_at_us, fact.envelope.event_id
    declaration = Declaration(
        at_us,
        event_id,
        fact.expected_size,
        fact.task,
        fact.deadline_us,
        fact.agent,
        fact.tags,
        fact.ordinal,
        fact.envelope.run_id,
        fact.revision,
    )
    if group.declaration is not None and declaration.rank <= group.declaration.rank:
        return group
    return replace(group, declaration=declaration)


def _closed(group: GroupState, fact: GroupClosed) -> GroupState:
    closing = Closing(fact.envelope.occurred_at_us, fact.envelope.event_id, tuple(sorted(set(fact.members))))
    if group.closing is not None and closing.rank <= group.closing.rank:
        return group
    return replace(group, closing=closing)


def flag(state: GroupState | None, fact: Fact) -> GroupState:
    """The group after a fact on which the fold raised: its subject is marked, so that no run trains on it."""
    group = state or GroupState(fact.group_id)
    if group.eviction is not None:
        return group
    if isinstance(fact, GroupOpened | GroupClosed | GroupEvicted):
        return replace(group, buggy=True)
    now = group.trajectories.get(fact.trajectory_id, NEW_TRAJECTORY)
    if now.evicted:
        return group
    call_id = getattr(fact, "call_id", None)
    if call_id is None:
        marked = replace(now, buggy=True)
    else:
        step = replace(now.steps.get(call_id, StepState()), buggy=True)
        marked = replace(now, steps=grown(now.steps, call_id, step))
    return replace(group, trajectories=grown(group.trajectories, fact.trajectory_id, marked))

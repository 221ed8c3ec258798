"""Facts about one trajectory: its life, and the way of step facts to their step.

A handler returns the fields that its fact changes, so that the state is copied once per fact.
"""

from typing import Any

from datapool import bounds, join, step
from datapool.growing import grown
from datapool.state import Ending, Registration, SlotKey, StepState, TrajectoryState
from schemas.events import (
    CallCaptured,
    CallFailed,
    FactPosition,
    RewardAssigned,
    RewardSlot,
    StepCurated,
    TrajectoryAbandoned,
    TrajectoryCompleted,
    TrajectoryEvicted,
    TrajectoryStarted,
)

OUTCOME = SlotKey(None, "agent", "outcome")
"""The slot that a completion's own reward claims."""
NEW_STEP = StepState()
Fields = dict[str, Any]  # of a TrajectoryState, each of its own type


def called(now: TrajectoryState, fact: CallCaptured, position: FactPosition) -> Fields:
    """A call of this trajectory, late ones too."""
    captured = step.captured(now.steps.get(fact.call_id, NEW_STEP), fact, position)
    return {"steps": grown(now.steps, fact.call_id, captured), **_observed(now, fact)}


def call_failed(now: TrajectoryState, fact: CallFailed) -> Fields:
    """A call without tokens: only counted."""
    failed = now.failed_calls | {f"{fact.call_id}#{fact.attempt}"}
    if len(failed) > bounds.FAILED_CALLS_MAX:
        failed -= {max(failed)}
    return {"failed_calls": failed, **_observed(now, fact)}


def rewarded(now: TrajectoryState, fact: RewardAssigned) -> Fields:
    """A reward: of a call, or kept here."""
    key, slot = step.reward_slot(fact)
    if fact.call_id is None:
        return _slots(now, key, slot)
    judged = step.rewarded(now.steps.get(fact.call_id, NEW_STEP), key, slot)
    return {"steps": grown(now.steps, fact.call_id, judged)}


def curated(now: TrajectoryState, fact: StepCurated) -> Fields:
    """A judgement of a call."""
    judged = step.curated(now.steps.get(fact.call_id, NEW_STEP), fact)
    return {"steps": grown(now.steps, fact.call_id, judged)}


def started(now: TrajectoryState, fact: TrajectoryStarted) -> Fields:
    """Registered; the highest event_id wins, then the highest content."""
    registration = Registration(fact.envelope.event_id, fact.task, fact.tags, fact.metadata)
    won = registration if registration.rank > now.registration.rank else now.registration
    return {"registration": won, **_observed(now, fact)}


def completed(now: TrajectoryState, fact: TrajectoryCompleted) -> Fields:
    """The agent is done. Its reward claims the outcome slot whether or not its status wins."""
    event_id = fact.envelope.event_id
    ended: Fields = {"ending": _later(now.ending, Ending(fact.status, event_id, "", fact.calls, fact.rewards))}
    if fact.reward is None:
        return ended
    slot = RewardSlot(source="agent", name="outcome", value=fact.reward, revision=0, event_id=event_id)
    return ended | _slots(now, OUTCOME, slot)


def abandoned(now: TrajectoryState, fact: TrajectoryAbandoned) -> Fields:
    """A reactor gave it up; a completion outranks that."""
    return {"ending": _later(now.ending, Ending("abandoned", fact.envelope.event_id, fact.reason))}


def evicted(now: TrajectoryState, fact: TrajectoryEvicted) -> TrajectoryState:
    """Erased: everything but the word of it goes."""
    return TrajectoryState(ending=_later(now.ending, Ending("evicted", fact.envelope.event_id, fact.reason)))


def _observed(now: TrajectoryState, fact: CallCaptured | CallFailed | TrajectoryStarted) -> Fields:
    return {"channel": join.channel(now.channel, fact.channel), "agent": join.first(now.agent, fact.agent)}


def _later(left: Ending, right: Ending) -> Ending:
    return max(left, right, key=lambda ending: ending.rank)


def _slots(now: TrajectoryState, key: SlotKey, slot: RewardSlot) -> Fields:
    return {"slots": join.slots(now.slots, key, slot)}

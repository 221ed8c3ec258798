"""Facts about one trajectory: its life, and the way of step facts to their step."""

from datapool import join, step
from datapool.changed import changed
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


def called(now: TrajectoryState, fact: CallCaptured, position: FactPosition) -> TrajectoryState:
    """A call of this trajectory, late ones too."""
    captured = step.captured(now.steps.get(fact.call_id, NEW_STEP), fact, position)
    return changed(
        now,
        steps={**now.steps, fact.call_id: captured},
        channel=join.channel(now.channel, fact.channel),
        agent=join.first(now.agent, fact.agent),
    )


def call_failed(now: TrajectoryState, fact: CallFailed) -> TrajectoryState:
    """A call without tokens: only counted."""
    return changed(
        now,
        failed_calls=now.failed_calls | {f"{fact.call_id}#{fact.attempt}"},
        channel=join.channel(now.channel, fact.channel),
        agent=join.first(now.agent, fact.agent),
    )


def rewarded(now: TrajectoryState, fact: RewardAssigned) -> TrajectoryState:
    """A reward: of a call, or kept here."""
    key, slot = step.reward_slot(fact)
    if fact.call_id is None:
        return _with_slot(now, key, slot)
    judged = step.rewarded(now.steps.get(fact.call_id, NEW_STEP), key, slot)
    return changed(now, steps={**now.steps, fact.call_id: judged})


def curated(now: TrajectoryState, fact: StepCurated) -> TrajectoryState:
    """A judgement of a call."""
    judged = step.curated(now.steps.get(fact.call_id, NEW_STEP), fact)
    return changed(now, steps={**now.steps, fact.call_id: judged})


def started(now: TrajectoryState, fact: TrajectoryStarted) -> TrajectoryState:
    """Registered; the highest event_id wins, then the highest content."""
    registration = Registration(fact.envelope.event_id, fact.task, fact.tags, fact.metadata)
    if registration.rank > now.registration.rank:
        now = changed(now, registration=registration)
    return changed(now, channel=join.channel(now.channel, fact.channel), agent=join.first(now.agent, fact.agent))


def completed(now: TrajectoryState, fact: TrajectoryCompleted) -> TrajectoryState:
    """The agent is done. Its reward claims the outcome slot whether or not its status wins."""
    event_id = fact.envelope.event_id
    now = _ended(now, Ending(fact.status, event_id, "", fact.calls, fact.rewards))
    if fact.reward is None:
        return now
    return _with_slot(
        now, OUTCOME, RewardSlot(source="agent", name="outcome", value=fact.reward, revision=0, event_id=event_id)
    )


def abandoned(now: TrajectoryState, fact: TrajectoryAbandoned) -> TrajectoryState:
    """A reactor gave it up; a completion outranks that."""
    return _ended(now, Ending("abandoned", fact.envelope.event_id, fact.reason))


def evicted(now: TrajectoryState, fact: TrajectoryEvicted) -> TrajectoryState:
    """Erased: everything but the word of it goes."""
    return TrajectoryState(ending=_later(now.ending, Ending("evicted", fact.envelope.event_id, fact.reason)))


def _ended(now: TrajectoryState, ending: Ending) -> TrajectoryState:
    later = _later(now.ending, ending)
    return now if later is now.ending else changed(now, ending=later)


def _later(left: Ending, right: Ending) -> Ending:
    return max(left, right, key=lambda ending: ending.rank)


def _with_slot(now: TrajectoryState, key: SlotKey, slot: RewardSlot) -> TrajectoryState:
    return changed(now, slots={**now.slots, key: join.slot(now.slots.get(key), slot)})

"""The events that are facts for the folds; what people prefer or write passes them by, all
others are dead letters."""

import math
from typing import TypeGuard

from claw_r1.consumers.verify.oracle import bounds
from claw_r1.schemas.events import (
    CallCaptured,
    CallFailed,
    Event,
    FactPosition,
    GroupClosed,
    GroupEvicted,
    GroupOpened,
    OutputEdited,
    PreferenceGiven,
    RewardAssigned,
    ScoringFailed,
    StepCurated,
    TrajectoryAbandoned,
    TrajectoryCompleted,
    TrajectoryEvicted,
    TrajectoryStarted,
)

GroupFact = GroupOpened | GroupClosed | GroupEvicted
PooledTrajectoryFact = (
    CallCaptured
    | CallFailed
    | RewardAssigned
    | ScoringFailed
    | StepCurated
    | TrajectoryAbandoned
    | TrajectoryCompleted
    | TrajectoryEvicted
    | TrajectoryStarted
)
PooledFact = GroupFact | PooledTrajectoryFact
NoFact = OutputEdited | PreferenceGiven
PlacedFact = tuple[PooledFact, FactPosition]
ID_CHARACTERS_MAX = 4096
REWARD_MAX = 1e30


def sound(event: Event) -> TypeGuard[PooledFact]:
    """Returns whether the folds take the event."""
    if not isinstance(event, PooledFact) or not event.envelope.event_id:
        return False
    ids = [getattr(event, name, None) or "" for name in ("group_id", "trajectory_id", "call_id")]
    return all(len(text) <= ID_CHARACTERS_MAX for text in ids) and _sound_content(event)


def _sound_content(fact: PooledFact) -> bool:
    match fact:
        case RewardAssigned():
            return _sound_reward(fact)
        case ScoringFailed():
            return fact.call_id is not None or f"{fact.source}/{fact.name}" != "agent/completion"
        case TrajectoryStarted():
            return fact.idle_s is None or math.isfinite(fact.idle_s)
        case TrajectoryCompleted():
            return fact.status in ("completed", "failed") and (fact.reward is None or _in_range(fact.reward))
        case GroupClosed():
            members = sorted(set(fact.members))
            return bounds.room(members, bounds.MEMBERS_BYTES, bounds.BYTES_PER_MEMBER) == len(members)
        case StepCurated():
            numbers = [number for number in (fact.quality, *fact.scores.values()) if number is not None]
            return all(map(math.isfinite, numbers))
        case _:
            return True


def _sound_reward(fact: RewardAssigned) -> bool:
    of_trajectory = fact.call_id is None and fact.step_index is None
    if of_trajectory and f"{fact.source}/{fact.name}" == "agent/completion":
        return False
    return (fact.value is None or _in_range(fact.value)) and (fact.call_id is not None or (fact.step_index or 0) >= 0)


def _in_range(value: float) -> bool:
    return -REWARD_MAX <= value <= REWARD_MAX

"""Facts about one trajectory: its life, and the way of step facts to their step.

A handler returns the fields that its fact changes, so that the state is copied once per fact.
"""

from typing import Any

from msgspec.structs import replace

from claw_r1.datapool.fold import bounds, curation, merge, step
from claw_r1.datapool.fold.state import Ending, Registration, StepState, TrajectoryFact, TrajectoryState
from claw_r1.datapool.immutable_map import grown
from claw_r1.schemas.events import (
    CallCaptured,
    CallFailed,
    FactPosition,
    RewardAssigned,
    ScoringFailed,
    StepCurated,
    TrajectoryAbandoned,
    TrajectoryCompleted,
    TrajectoryEvicted,
    TrajectoryStarted,
)

NEW_STEP = StepState()
TrajectoryFields = dict[str, Any]  # of a TrajectoryState, each of its own type


def called(now: TrajectoryState, fact: CallCaptured, position: FactPosition) -> TrajectoryFields:
    """A call of this trajectory, late ones too."""
    captured = step.captured(now.steps.get(fact.call_id, NEW_STEP), fact, position)
    return {"steps": grown(now.steps, fact.call_id, captured), **_observed(now, fact)}


def call_failed(now: TrajectoryState, fact: CallFailed) -> TrajectoryFields:
    """A call without tokens: only counted."""
    failed = now.failed_calls | {f"{fact.call_id}#{fact.attempt}"}
    if len(failed) > bounds.FAILED_CALLS_MAX:
        failed -= {max(failed)}
    return {"failed_calls": failed, **_observed(now, fact)}


def rewarded(now: TrajectoryState, fact: RewardAssigned | ScoringFailed) -> TrajectoryFields:
    """A reward, or the note that none comes: of a call, or kept here."""
    key, slot = step.reward_slot(fact)
    if fact.call_id is None:
        return {"slots": merge.slots(now.slots, key, slot)}
    before = now.steps.get(fact.call_id, NEW_STEP)
    return {"steps": grown(now.steps, fact.call_id, replace(before, slots=merge.slots(before.slots, key, slot)))}


def curated(now: TrajectoryState, fact: StepCurated) -> TrajectoryFields:
    """A judgement of a call, or judgements taken back."""
    before = now.steps.get(fact.call_id, NEW_STEP)
    annotated = replace(before, curation=curation.annotated(before.curation, fact))
    return {"steps": grown(now.steps, fact.call_id, annotated)}


def started(now: TrajectoryState, fact: TrajectoryStarted) -> TrajectoryFields:
    """Registered; the higher revision wins, then the later word."""
    at_us, event_id = _word(fact)
    registration = Registration(
        at_us, event_id, fact.task, fact.tags, fact.metadata, fact.idle_s, fact.envelope.run_id, fact.revision
    )
    won = registration if registration.rank > now.registration.rank else now.registration
    return {"registration": won, **_observed(now, fact)}


def completed(now: TrajectoryState, fact: TrajectoryCompleted) -> TrajectoryFields:
    """The agent is done. Of two completions one counts as a whole, with its counts and its reward."""
    ending = Ending(fact.status, *_word(fact), "", fact.calls, fact.rewards, fact.reward, fact.revision)
    return {"ending": _later(now.ending, ending)}


def abandoned(now: TrajectoryState, fact: TrajectoryAbandoned) -> TrajectoryFields:
    """A reactor gave it up; a completion outranks that."""
    return {"ending": _later(now.ending, Ending("abandoned", *_word(fact), fact.reason))}


def evicted(now: TrajectoryState, fact: TrajectoryEvicted) -> TrajectoryState:
    """Erased: everything but the word of it goes."""
    return TrajectoryState(ending=_later(now.ending, Ending("evicted", *_word(fact), fact.reason)))


def _word(fact: TrajectoryFact) -> tuple[int, str]:
    return fact.envelope.occurred_at_us, fact.envelope.event_id


def _observed(now: TrajectoryState, fact: CallCaptured | CallFailed | TrajectoryStarted) -> TrajectoryFields:
    return {"channel": merge.channel(now.channel, fact.channel), "agent": merge.first(now.agent, fact.agent)}


def _later(left: Ending, right: Ending) -> Ending:
    return max(left, right, key=lambda ending: ending.rank)

"""What people did to the pool, by act, as it comes from the log. Safe from any thread.

Invariant: a function of the set of events; what stands of an act is decided where everybody decides it (`datapool.fold.curation`
for curations, `datapool.standing` for words).
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from datapool.feedback import HUMAN, FeedbackFact
from datapool.fold.curation import annotated, counting
from schemas.events import (
    Curation,
    Event,
    OutputEdited,
    PreferenceGiven,
    RewardAssigned,
    StepCurated,
    TrajectoryEvicted,
)

ActFact = FeedbackFact | TrajectoryEvicted
ActKind = Literal["judged", "preferred", "curated", "undone", "evicted"]


@dataclass(slots=True)
class PersonalAct:
    """All events of one act, by id."""

    act_id: str
    who: str
    facts: dict[str, ActFact] = field(default_factory=dict)

    @property
    def at_us(self) -> int:
        """When its first event occurred."""
        return min(fact.envelope.occurred_at_us for fact in self.facts.values())

    @property
    def kind(self) -> ActKind:
        """What most tells it from others."""
        facts = self.facts.values()
        if any(isinstance(fact, TrajectoryEvicted) for fact in facts):
            return "evicted"
        if all(is_withdrawal(fact) for fact in facts):
            return "undone"
        if any(isinstance(fact, PreferenceGiven) for fact in facts):
            return "preferred"
        return "curated" if any(isinstance(fact, StepCurated) for fact in facts) else "judged"


class PersonalActs:
    """Every act of a person on claw.rewards, and what this process evicted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acts: dict[str, PersonalAct] = {}
        self._curated: dict[tuple[str, str, str], dict[str, StepCurated]] = defaultdict(dict)

    def add(self, event: Event) -> str | None:
        """Takes one event in; the id of its act where that is news."""
        who = person_of(event)
        if who is None or not isinstance(event, ActFact):
            return None
        act_id = event.envelope.correlation_id or event.envelope.event_id
        with self._lock:
            act = self._acts.setdefault(act_id, PersonalAct(act_id, who))
            if event.envelope.event_id in act.facts:
                return None
            act.facts[event.envelope.event_id] = event
            if isinstance(event, StepCurated):
                self._curated[event.group_id, event.trajectory_id, event.call_id][event.envelope.event_id] = event
        return act_id

    def named(self, name: str) -> PersonalAct | None:
        """The act of that id, or the one that an event of that id belongs to."""
        with self._lock:
            return self._acts.get(name) or next((act for act in self._acts.values() if name in act.facts), None)

    def latest(self, who: str | None = None) -> list[PersonalAct]:
        """The acts, the newest first."""
        with self._lock:
            acts = [act for act in self._acts.values() if who in (None, act.who)]
            return sorted(acts, key=lambda act: (act.at_us, act.act_id), reverse=True)

    def curations(self, places: Iterable[tuple[str, str, str]]) -> list[StepCurated]:
        """All that people ever judged of these calls, and took back."""
        with self._lock:
            return [fact for place in places for fact in self._curated.get(place, {}).values()]

    def curation(self, place: tuple[str, str, str], pooled: Curation | None) -> Curation | None:
        """What counts of a call, also of judgements that the pool has not folded yet."""
        for fact in self.curations([place]):
            pooled = annotated(pooled, fact)
        return pooled

    def standing(self, act: PersonalAct) -> list[StepCurated]:
        """Its curations that nobody took back."""
        own = [fact for fact in act.facts.values() if isinstance(fact, StepCurated)]
        standing: list[StepCurated] = []
        for fact in own:
            curation = self.curation((fact.group_id, fact.trajectory_id, fact.call_id), None)
            ids = {judgement.event_id for judgement in counting(curation.judgements if curation else ())}
            standing += [fact] if fact.envelope.event_id in ids else []
        return standing


def person_of(event: Event) -> str | None:
    """Who did it; None for what no person did."""
    match event:
        case StepCurated():
            return None if event.who.startswith("scorer/") else event.who
        case RewardAssigned() | OutputEdited() | PreferenceGiven() if event.source.startswith(HUMAN):
            return event.source.removeprefix(HUMAN)
        case TrajectoryEvicted():
            return event.requested_by
    return None


def is_withdrawal(fact: ActFact) -> bool:
    """Whether it only takes something back."""
    match fact:
        case StepCurated():
            return bool(fact.undoes)
        case RewardAssigned():
            return fact.value is None and fact.metadata is None
        case OutputEdited():
            return fact.message is None
        case PreferenceGiven():
            return fact.outcome == "withdrawn"
    return False


def saying(fact: ActFact) -> str:
    """What was done, in a few words."""
    match fact:
        case TrajectoryEvicted():
            return f"evicted: {fact.reason}"
        case _ if is_withdrawal(fact):
            return "taken back"
        case StepCurated():
            scores = [f"{scorer} {score}" for scorer, score in fact.scores.items()]
            fields = (("trainable", fact.trainable), ("quality", fact.quality), ("note", fact.note))
            tags = [] if fact.tags is None else [f"tags {', '.join(fact.tags) or 'none'}"]
            words = [
                f"{name} {str(value).lower() if isinstance(value, bool) else value}"
                for name, value in fields
                if value is not None
            ]
            return "; ".join([*words, *tags, *scores])
        case RewardAssigned():
            return f"{fact.name} {fact.value:g}" if fact.value is not None else "a comment"
        case PreferenceGiven():
            return {"chosen": f"preferred to {fact.rejected.trajectory_id}", "tie": "a tie", "both_bad": "both bad"}[
                fact.outcome
            ]
    return "a better reply"


def subjects(facts: Sequence[ActFact], limit: int) -> list[dict[str, str | None]]:
    """Where it was done, at most `limit` places."""
    places = (
        {"g": fact.group_id, "t": fact.chosen.trajectory_id, "c": fact.chosen.call_id}
        if isinstance(fact, PreferenceGiven)
        else {"g": fact.group_id, "t": fact.trajectory_id, "c": getattr(fact, "call_id", None)}
        for fact in facts
    )
    distinct = {tuple(place.values()): place for place in places}
    return list(distinct.values())[:limit]

"""The acts of people on the pool, as they come from the log. Safe from any thread.

Invariant: a function of the set of events. The current effect is decided elsewhere:
`claw_r1.datapool.fold.curation` decides on curations, `claw_r1.datapool.personal_words` for words.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from claw_r1.consumers.pool.acts import EvictionFact
from claw_r1.datapool.feedback import HUMAN, THUMB, FeedbackFact
from claw_r1.datapool.fold.curation import annotated
from claw_r1.schemas.events import (
    Curation,
    Event,
    OutputEdited,
    PreferenceGiven,
    RewardAssigned,
    StepCurated,
)

ActFact = FeedbackFact | EvictionFact
CallKey = tuple[str, str, str]
"""(group_id, trajectory_id, call_id)"""
SCALE_STEPS = 5
"""The keys of the page by which people score, from 0 to 1 (`static/parts/judge.js`)."""
ActKind = Literal["judged", "preferred", "curated", "undone", "evicted"]


@dataclass(slots=True)
class PersonalAct:
    """All events of one act, in order of arrival: a list that may grow while being read."""

    act_id: str
    who: str
    at_us: int
    """The time of the act's first event."""
    facts: list[ActFact] = field(default_factory=list)
    _types: set[type] = field(default_factory=set)
    _withdraws: bool = True
    """Nothing but withdrawals."""

    def add(self, fact: ActFact) -> None:
        """One more of its events."""
        self.at_us = min(self.at_us, fact.envelope.occurred_at_us)
        self._types.add(type(fact))
        self._withdraws &= is_withdrawal(fact)
        self.facts.append(fact)

    @property
    def kind(self) -> ActKind:
        """The kind that most tells the act from others."""
        if self._types & {*get_args(EvictionFact)}:
            return "evicted"
        if self._withdraws:
            return "undone"
        if PreferenceGiven in self._types:
            return "preferred"
        return "curated" if StepCurated in self._types else "judged"

    @property
    def is_of_curations(self) -> bool:
        """The act consists of curations alone."""
        return self._types == {StepCurated}

    def event_ids(self) -> set[str]:
        """Returns the ids of its events."""
        return {fact.envelope.event_id for fact in self.facts}


class PersonalActs:
    """Every act of a person on claw.rewards, and what this process evicted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acts: dict[str, PersonalAct] = {}
        self._seen: dict[str, str] = {}
        """event_id -> act_id"""
        self._curated: dict[tuple[str, str, str], list[StepCurated]] = defaultdict(list)
        self._undos: dict[tuple[CallKey, str], list[StepCurated]] = defaultdict(list)
        """The events that take back each event of a call."""

    def add(self, event: Event) -> str | None:
        """Takes one event in; the id of its act where that is news."""
        who = person_of(event)
        if who is None or not isinstance(event, ActFact):
            return None
        own = event.envelope
        act_id = own.correlation_id or own.event_id
        with self._lock:
            if own.event_id in self._seen:
                return None
            self._seen[own.event_id] = act_id
            self._acts.setdefault(act_id, PersonalAct(act_id, who, own.occurred_at_us)).add(event)
            if isinstance(event, StepCurated):
                self._curated[_place(event)].append(event)
                for event_id in event.undoes:
                    self._undos[_place(event), event_id].append(event)
        return act_id

    def named(self, name: str) -> PersonalAct | None:
        """The act of that id, or the one that an event of that id belongs to."""
        with self._lock:
            return self._acts.get(name) or self._acts.get(self._seen.get(name, ""))

    def latest(self, who: str | None = None) -> list[PersonalAct]:
        """The acts, the newest first."""
        with self._lock:
            acts = [act for act in self._acts.values() if who in (None, act.who)]
            return sorted(acts, key=lambda act: (act.at_us, act.act_id), reverse=True)

    def curations(self, places: Iterable[tuple[str, str, str]]) -> list[StepCurated]:
        """All that people ever judged of these calls, and took back."""
        with self._lock:
            return [fact for place in places for fact in self._curated.get(place, ())]

    def curates(self, act: PersonalAct) -> bool:
        """Returns whether a curation of the act counts, as `claw_r1.datapool.fold.curation.counting` decides, among all
        that people judged."""
        with self._lock:
            return any(isinstance(fact, StepCurated) and self._counts(fact) for fact in act.facts)

    def _counts(self, fact: StepCurated) -> bool:
        undos = self._undos.get((_place(fact), fact.envelope.event_id), ())
        return not any(_rank(undo) > _rank(fact) and self._counts(undo) for undo in undos)

    def curation(self, place: tuple[str, str, str], pooled: Curation | None) -> Curation | None:
        """Returns the curation of a call that counts, also of judgements that the pool has not folded yet."""
        for fact in self.curations([place]):
            pooled = annotated(pooled, fact)
        return pooled


def _place(fact: StepCurated) -> CallKey:
    return fact.group_id, fact.trajectory_id, fact.call_id


def _rank(fact: StepCurated) -> tuple[int, int, str]:
    return fact.revision, fact.envelope.occurred_at_us, fact.envelope.event_id


def person_of(event: Event) -> str | None:
    """Returns the person who did it; None if no person did."""
    match event:
        case StepCurated():
            return None if event.who.startswith("scorer/") else event.who
        case RewardAssigned() | OutputEdited() | PreferenceGiven() if event.source.startswith(HUMAN):
            return event.source.removeprefix(HUMAN)
        case _ if isinstance(event, EvictionFact):
            return event.requested_by
    return None


def is_withdrawal(fact: ActFact) -> bool:
    """Returns whether the fact only takes something back."""
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


def _on_scale(value: float) -> str:
    """Writes a score as the key of the page that gives it: 2 of 5 is 0.25."""
    step = value * (SCALE_STEPS - 1)
    return f"{step + 1:g} of {SCALE_STEPS}" if step in range(SCALE_STEPS) else f"{value:g}"


def saying(fact: ActFact) -> str:
    """Describes the act in a few words."""
    match fact:
        case _ if isinstance(fact, EvictionFact):
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
        case RewardAssigned(name=name) if name == THUMB:
            return "thumb up" if fact.value else "thumb down"
        case RewardAssigned():
            return "a comment" if fact.value is None else f"{fact.name} {_on_scale(fact.value)}"
        case PreferenceGiven():
            of_two = {"chosen": f"preferred to {fact.rejected.trajectory_id}", "tie": "a tie", "both_bad": "both bad"}
            return of_two.get(fact.outcome, fact.outcome)
    return "a better reply"


def subjects(facts: Sequence[ActFact], limit: int) -> list[dict[str, str | None]]:
    """Returns the subjects of the act, at most `limit` of them; of a preference with the other, `o`."""
    places = (
        {
            "g": fact.group_id,
            "t": fact.chosen.trajectory_id,
            "c": fact.chosen.call_id,
            "o": fact.rejected.trajectory_id,
        }
        if isinstance(fact, PreferenceGiven)
        else {"g": fact.group_id, "t": getattr(fact, "trajectory_id", None), "c": getattr(fact, "call_id", None)}
        for fact in facts
    )
    distinct: dict[tuple[str | None, ...], dict[str, str | None]] = {}
    for place in places:
        distinct[tuple(place.values())] = place
        if len(distinct) == limit:
            break
    return list(distinct.values())

"""The curation of a call by scorers and people, with what was taken back left out."""

from collections.abc import Mapping, Sequence
from typing import Any

from claw_r1.consumers.verify.oracle import bounds
from claw_r1.consumers.verify.oracle.conflicts import FactRank, signed
from claw_r1.schemas.events import Curation, Judgement, StepCurated

CONTENT = ("revision", "who", "trainable", "quality", "tags", "note", "undoes")
EXCLUSIVE = ("trainable", "quality", "tags", "note")
"""The fields of which the latest value that is not null counts."""
ScoresByName = Mapping[str, float | None]


def curation_of(facts: Sequence[StepCurated]) -> Curation | None:
    """None without a judgement."""
    if not facts:
        return None
    rising = _rising(facts)
    fields: dict[str, Any] = {}  # of Curation, by name
    scores: dict[str, float | None] = {}
    for fact in _standing(rising):
        for scorer in fact.scores.keys() - scores.keys():
            fields.setdefault("who", fact.who)
            scores[scorer] = fact.scores[scorer]
        for name in EXCLUSIVE:
            if (value := getattr(fact, name)) is not None:
                fields.setdefault("who", fact.who)
                fields.setdefault(name, value)
    return Curation(judgements=tuple(map(_judgement, rising)), scores=_by_name(scores), **fields)


def _rising(facts: Sequence[StepCurated]) -> list[StepCurated]:
    """Returns one fact of each event id, the highest by content; by revision, time and event id; the last that a record
    has room for."""
    unique = {fact.envelope.event_id: fact for fact in sorted(facts, key=_rank)}
    rising = sorted(
        unique.values(), key=lambda fact: (fact.revision, fact.envelope.occurred_at_us, fact.envelope.event_id)
    )
    return rising[-bounds.JUDGEMENTS :]


def _standing(rising: Sequence[StepCurated]) -> list[StepCurated]:
    """Returns the facts that no higher standing one has taken back, the highest first."""
    undone: set[str] = set()
    standing = []
    for fact in reversed(rising):
        if fact.envelope.event_id not in undone:
            undone |= set(fact.undoes)
            standing.append(fact)
    return standing


def _judgement(fact: StepCurated) -> Judgement:
    content: dict[str, Any] = {name: getattr(fact, name) for name in CONTENT}  # fields of Judgement
    return Judgement(
        event_id=fact.envelope.event_id,
        occurred_at_us=fact.envelope.occurred_at_us,
        scores=_by_name(fact.scores),
        **content,
    )


def _by_name(scores: ScoresByName) -> dict[str, float | None]:
    return {scorer: scores[scorer] for scorer in sorted(scores)}


def _rank(fact: StepCurated) -> list[Any]:  # values whose types differ, made comparable
    """The content, in the order of the record."""
    at_us = fact.envelope.occurred_at_us
    values = (fact.revision, at_us, fact.who, fact.trainable, fact.quality, fact.tags, fact.note, fact.undoes)
    scores: list[tuple[str, FactRank]] = [(scorer, signed(fact.scores[scorer])) for scorer in sorted(fact.scores)]
    return [*map(signed, values), scores]

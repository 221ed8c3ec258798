"""The feedback of people, read back from claw.rewards: the part that counts, and its whole history. Pure.

Invariant: a function of the set of facts: any order and any number of repetitions gives the same. The rules are those of
`claw_r1.datapool.feedback`; whether a note was taken back is decided as for every curation (`claw_r1.datapool.fold.curation`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
import orjson
from msgspec import Struct

from claw_r1.datapool.feedback import COMMENT, EDIT, HUMAN, THUMB, FeedbackFact, FeedbackSubject
from claw_r1.datapool.fold.curation import annotated, counting
from claw_r1.schemas.events import Curation, Event, OutputEdited, PreferenceGiven, RewardAssigned, StepCurated

WordKind = Literal["thumb", "score", "comment", "edit", "preference"]
PREFERENCE: WordKind = "preference"


class PersonalWord(Struct, frozen=True, kw_only=True):
    """One word of one person (of a preference: or of a scorer)."""

    fact: FeedbackFact
    kind: WordKind
    subject: FeedbackSubject
    """The subject; of a preference: the chosen one."""
    other: FeedbackSubject | None = None
    """The rejected subject of a preference: the rejected one."""
    source: str
    """`human:<who>`, or a scorer."""
    name: str
    """The name of the slot or the preference; `edit` or `comment` of these."""
    stands: bool = False
    """The feedback counts now: it was neither taken back nor replaced by later feedback of the same person."""

    @property
    def who(self) -> str:
        """The person's name; a scorer's source as it is."""
        return self.source.removeprefix(HUMAN)

    @property
    def act_id(self) -> str:
        """The same for all words of one act."""
        return self.fact.envelope.correlation_id or self.fact.envelope.event_id

    @property
    def is_withdrawal(self) -> bool:
        """The fact empties its slot."""
        return not _says(self.fact)

    @property
    def value(self) -> float | None:
        """The value of a thumb (1 or 0) or a score."""
        return self.fact.value if isinstance(self.fact, RewardAssigned) else None

    @property
    def comment(self) -> str | None:
        """The comment in the person's words."""
        match self.fact:
            case RewardAssigned(metadata=str() as metadata):
                return _comment_in(metadata)
            case StepCurated():
                return self.fact.note
            case OutputEdited() | PreferenceGiven():
                return self.fact.comment
        return None

    @property
    def message(self) -> dict[str, Any] | None:
        """The message of an edit: the assistant's message in chat's format."""
        return _object(self.fact.message) if isinstance(self.fact, OutputEdited) else None


_Facts = dict[str, FeedbackFact]
"""By event id."""


class Feedback:
    """The words of people, and preferences of any source, live. Used by one thread."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._places: dict[str, dict[tuple[Any, ...], _Facts]] = defaultdict(dict)
        """Group -> place -> facts; of all curations of a call one place, since one takes back another's."""
        for event in events:
            self.add(event)

    def add(self, event: Event) -> bool:
        """Returns whether the event is feedback of a person, or takes some back."""
        place = _place(event)
        if place is None or not isinstance(event, FeedbackFact):
            return False
        facts = self._places[event.group_id].setdefault(place, {})
        event_id = event.envelope.event_id
        facts[event_id] = max(facts.get(event_id, event), event, key=_rank)
        return True

    def groups(self) -> list[str]:
        """Groups with feedback, sorted."""
        return sorted(self._places)

    def history(
        self, group_id: str | None = None, subject: FeedbackSubject | None = None, source: str | None = None
    ) -> list[PersonalWord]:
        """All words, in the order of their rank, withdrawals too. subject: one side of a preference suffices."""
        if group_id is None and subject is not None:
            group_id = subject.group_id
        groups = self.groups() if group_id is None else [group_id] if group_id in self._places else []
        words = [
            word for name in groups for place, facts in self._places[name].items() for word in _words(place, facts)
        ]
        return sorted(
            (
                word
                for word in words
                if (subject is None or subject in (word.subject, word.other)) and source in (None, word.source)
            ),
            key=lambda word: _rank(word.fact),
        )

    def standing(
        self, group_id: str | None = None, subject: FeedbackSubject | None = None, source: str | None = None
    ) -> list[PersonalWord]:
        """The words that count now, in the order of their rank."""
        return [word for word in self.history(group_id, subject, source) if word.stands]

    def latest_revision(self, subject: FeedbackSubject, source: str) -> int:
        """Returns the latest revision of this person's words on the subject, above which the next one counts whatever
        the clocks say; 0: none."""
        return max((word.fact.revision for word in self.history(subject=subject, source=source)), default=0)

    def last_act(
        self, source: str, group_id: str | None = None, subject: FeedbackSubject | None = None
    ) -> list[PersonalWord]:
        """Returns the current feedback of the person's latest act that has any, which an undo takes back."""
        words = self.standing(group_id, subject, source)
        return [word for word in words if word.act_id == words[-1].act_id]


def _place(event: Event) -> tuple[Any, ...] | None:
    """Returns the key under which only one judgement of one person counts; None: it is not a person's."""
    match event:
        case RewardAssigned(step_index=None) if event.source.startswith(HUMAN):
            kind = event.name if event.name in (THUMB, COMMENT) else "score"
            return kind, FeedbackSubject(event.group_id, event.trajectory_id, event.call_id), event.source, event.name
        case OutputEdited():
            return EDIT, FeedbackSubject(event.group_id, event.trajectory_id, event.call_id), event.source, EDIT
        case PreferenceGiven():
            return PREFERENCE, frozenset(_sides(event)), event.source, event.name
        case StepCurated() if event.undoes or _is_note(event):
            return COMMENT, FeedbackSubject(event.group_id, event.trajectory_id, event.call_id), None, COMMENT
    return None


def _words(place: tuple[Any, ...], facts: _Facts) -> Iterator[PersonalWord]:
    kind, subject, source, name = place
    if source is None:
        yield from _notes(subject, facts)
        return
    highest = max(facts.values(), key=_rank)
    for fact in facts.values():
        sides = _sides(fact) if isinstance(fact, PreferenceGiven) else (subject, None)
        stands = fact is highest and _says(fact)
        yield PersonalWord(
            fact=fact, kind=kind, subject=sides[0], other=sides[1], source=source, name=name, stands=stands
        )


def _notes(subject: FeedbackSubject, facts: _Facts) -> Iterator[PersonalWord]:
    """The notes on a call; of each person the highest current one counts. A pure undo is no note of its own."""
    curation: Curation | None = None
    for fact in facts.values():
        if isinstance(fact, StepCurated):
            curation = annotated(curation, fact)
    notes = {name: fact for name, fact in facts.items() if isinstance(fact, StepCurated) and _is_note(fact)}
    current = counting(curation.judgements if curation else ())
    latest = {word.who: word.event_id for word in reversed(current) if word.event_id in notes}
    for name, fact in notes.items():
        stands = latest.get(fact.who) == name
        source = HUMAN + fact.who
        yield PersonalWord(fact=fact, kind="comment", subject=subject, source=source, name=COMMENT, stands=stands)


def _sides(fact: PreferenceGiven) -> tuple[FeedbackSubject, FeedbackSubject]:
    chosen, rejected = fact.chosen, fact.rejected
    return (
        FeedbackSubject(fact.group_id, chosen.trajectory_id, chosen.call_id),
        FeedbackSubject(fact.group_id, rejected.trajectory_id, rejected.call_id),
    )


def _is_note(fact: StepCurated) -> bool:
    """Only a comment, of a person: with a judgement beside it, it is the reason of a curation."""
    judges = fact.scores or (fact.trainable, fact.quality, fact.tags) != (None, None, None)
    return fact.note is not None and not judges and not fact.who.startswith("scorer/")


def _says(fact: FeedbackFact) -> bool:
    match fact:
        case RewardAssigned(name="comment", metadata=str() as metadata):
            return _comment_in(metadata) is not None
        case RewardAssigned():
            return fact.value is not None
        case OutputEdited():
            return _object(fact.message) is not None
        case PreferenceGiven():
            return fact.outcome in ("chosen", "tie", "both_bad")
    return _is_note(fact)


def _comment_in(metadata: str) -> str | None:
    comment = (_object(metadata) or {}).get(COMMENT)
    return comment if isinstance(comment, str) else None


def _object(text: str | None) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text or "null")
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


class _Content(Struct, frozen=True, eq=False):
    """Decides between two facts of one event id; their bytes are made only then."""

    fact: FeedbackFact

    def __lt__(self, other: "_Content") -> bool:
        return msgspec.json.encode(self.fact) < msgspec.json.encode(other.fact)


def _rank(fact: FeedbackFact) -> tuple[int, int, str, _Content]:
    own = fact.envelope
    return fact.revision, own.occurred_at_us, own.event_id, _Content(fact)

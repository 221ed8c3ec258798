"""The feedback of all people so far, summed up for the queue. Pure: a function of current words."""

from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from claw_r1.datapool.feedback import HUMAN
from claw_r1.datapool.personal_words import PersonalWord

JudgedKey = tuple[str, str]
"""group_id, trajectory_id."""
PairKey = tuple[str, frozenset[str]]
"""group_id, two trajectory_ids."""
JUDGEMENTS = ("thumb", "score", "edit")
"""Kinds of words that judge; a comment alone does not."""


@dataclass(slots=True)
class Voices:
    """The judges of each subject, and the spread of their scores."""

    judges: dict[JudgedKey, set[str]] = field(default_factory=lambda: defaultdict(set))
    pair_judges: dict[PairKey, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """The chosen trajectory of each judge; empty for a tie or two bad ones."""
    spread: dict[JudgedKey, float] = field(default_factory=dict)
    """The largest distance of two people's values of one name on one subject, at most 1."""

    def renewed(self, groups: Set[str], anew: "Voices") -> "Voices":
        """Returns voices with these groups taken from `anew` and all others from here; this one stays as it is."""
        return Voices(
            *(
                {place: each for place, each in getattr(self, name).items() if place[0] not in groups}
                | getattr(anew, name)
                for name in Voices.__slots__
            )
        )


def voices(standing: Iterable[PersonalWord]) -> Voices:
    """standing: the words that count now."""
    result = Voices()
    values: dict[tuple[JudgedKey, str | None, str], list[float]] = defaultdict(list)
    for word in standing:
        subject = word.subject
        place = (subject.group_id, subject.trajectory_id)
        if word.kind == "preference" and word.other is not None and word.source.startswith(HUMAN):
            pair = (subject.group_id, frozenset({subject.trajectory_id, word.other.trajectory_id}))
            chosen = getattr(word.fact, "outcome", "") == "chosen"
            result.pair_judges[pair][word.who] = subject.trajectory_id if chosen else ""
        elif word.kind in JUDGEMENTS:
            result.judges[place].add(word.who)
            if word.value is not None:
                values[place, subject.call_id, word.name].append(word.value)
    for (place, _, _), numbers in values.items():
        result.spread[place] = max(result.spread.get(place, 0.0), min(1.0, max(numbers) - min(numbers)))
    return result

"""The standing ratings of raters, from the facts of claw.rewards. Pure."""

import math
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from claw_r1.datapool.batch.spec import matches
from claw_r1.schemas.events import Event, RewardAssigned, ScoringFailed

K = TypeVar("K")
RatedSubject = tuple[str, str, str | None, int | None]
"""Group, trajectory, call, step index."""
SCORER = re.compile(r"(?P<slots>.*/[^/]*)@(?P<version>\d+)(?:\.g(?P<generation>\d+))?")
"""`judge/style@2`: the ratings of a scorer's version 2; `judge/style@2.g1`: those of its generation 1."""


class Rating(NamedTuple):
    """The standing rating of one rater on one subject."""

    subject: RatedSubject
    rater: str
    value: float
    version: int | None
    """The version of a scorer."""
    at_us: int
    generation: int = 0

    @property
    def by(self) -> tuple[str, int | None, int]:
        """The rater, and of a scorer which of its versions and generations: two of them are held against each other."""
        return self.rater, self.version, self.generation


class StandingWord(NamedTuple):
    """The last rating of one subject by a rater, or by one version and generation of a scorer."""

    rating: Rating
    """Its value is NaN where there is none."""
    rank: tuple[bool, int, int, str]
    failed: str | None
    """The reason why a scorer gave up, in a word."""
    verdict_id: str | None


class Standings:
    """The standing words of all raters. Order and repetition of the events do not matter."""

    def __init__(self) -> None:
        self._words: dict[tuple[RatedSubject, tuple[str, int | None, int]], StandingWord] = {}

    def add(self, event: RewardAssigned | ScoringFailed) -> None:
        """One more word."""
        word = _word(event)
        key = word.rating.subject, word.rating.by
        before = self._words.get(key)
        if before is None or before.rank < word.rank:
            self._words[key] = word

    def words(self) -> Iterable[StandingWord]:
        """The last word of each rater on every subject, in no order.

        Versions of a scorer are raters, its generations are one.
        """
        return _highest(self._words.values(), lambda word: (word.rating.subject, *word.rating.by[:2])).values()

    def ratings(self, pattern: str) -> list[Rating]:
        """Returns the current values of matching slots. A slot without a value has no rating.

        pattern: of slots; with a suffix `@VERSION` or `@VERSION.gN`, the last rating of it.
        """
        scorer = SCORER.fullmatch(pattern)
        slots = pattern if scorer is None else scorer["slots"]
        words = (
            word
            for word in self._words.values()
            if matches(slots, word.rating.rater) and (scorer is None or _is_of(word.rating, scorer))
        )
        highest = _highest(words, lambda word: (word.rating.subject, word.rating.rater))
        standing = sorted(
            highest.items(), key=lambda item: ([part or "" for part in item[0][0][:3]], item[0][0][3] or 0, item[0][1])
        )
        return [word.rating for _, word in standing if not math.isnan(word.rating.value)]


def ratings(events: Iterable[Event], pattern: str) -> list[Rating]:
    """Returns the standing ratings in the slots that match, from all facts of claw.rewards (`Standings.ratings`)."""
    standings = Standings()
    for event in events:
        if isinstance(event, RewardAssigned | ScoringFailed):
            standings.add(event)
    return standings.ratings(pattern)


def _highest(words: Iterable[StandingWord], key: Callable[[StandingWord], K]) -> dict[K, StandingWord]:
    """Returns of the words with one key the one that ranks highest."""
    highest: dict[K, StandingWord] = {}
    for word in words:
        place = key(word)
        if place not in highest or highest[place].rank < word.rank:
            highest[place] = word
    return highest


def _word(event: RewardAssigned | ScoringFailed) -> StandingWord:
    assigned = event if isinstance(event, RewardAssigned) else None
    index = assigned.step_index if assigned is not None and event.call_id is None else None
    verdict, value = event.verdict, None if assigned is None else assigned.value
    rating = Rating(
        (event.group_id, event.trajectory_id, event.call_id, index),
        f"{event.source}/{event.name}",
        math.nan if value is None else value,
        verdict.version if verdict else None,
        event.envelope.occurred_at_us,
        verdict.generation if verdict else 0,
    )
    failed = event.reason if isinstance(event, ScoringFailed) else None
    return StandingWord(rating, _rank(event), failed, verdict.verdict_id if verdict else None)


def _is_of(rating: Rating, scorer: re.Match[str]) -> bool:
    generation = scorer["generation"]
    return rating.version == int(scorer["version"]) and generation in (None, str(rating.generation))


def _rank(event: RewardAssigned | ScoringFailed) -> tuple[bool, int, int, str]:
    """Ranks an event like the pool when it settles a slot."""
    own = event.envelope
    return event.verdict is not None, event.revision, own.occurred_at_us, own.event_id

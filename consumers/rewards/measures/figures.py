"""Figures of raters' values, updated incrementally: by scorer and version, with cost and place of each verdict. Pure.

Memory: one entry per rater and subject, and one per verdict.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from claw_r1.consumers.rewards.measures.ratings import Standings, StandingWord
from claw_r1.eventlog.records import Position, Record, readable
from claw_r1.schemas.events import RewardAssigned, ScoringFailed, VerdictKept
from claw_r1.schemas.json_values import JsonDict

BARS = 20
POINTS_MAX, POINT_WORDS = 20, 5
"""Points of a trend, and the words that one at least is the mean of, where there are so many."""
VersionedSlot = tuple[str, int | None]
"""Slot and version; people, and scorers that keep no verdicts, have none."""


@dataclass(slots=True)
class ScorerCost:
    """The verdicts of one scorer, equal ones counted once."""

    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    price: float | None = None


@dataclass(slots=True)
class RewardState:
    """Everything that was read. Not thread-safe."""

    standings: Standings = field(default_factory=Standings)
    costs: dict[VersionedSlot, ScorerCost] = field(default_factory=dict)
    places: dict[str, Position] = field(default_factory=dict)
    """Verdict id -> where it stands."""

    def add(self, record: Record) -> None:
        """One more record of either topic."""
        for event in readable([record]):
            if isinstance(event, RewardAssigned | ScoringFailed):
                self.standings.add(event)
            elif isinstance(event, VerdictKept) and event.verdict_id not in self.places:
                self.places[event.verdict_id] = record.position
                cost = self.costs.setdefault((f"{event.source}/{event.name}", event.version), ScorerCost())
                cost.seconds.append(event.seconds)
                cost.tokens += event.tokens
                cost.price = cost.price if event.price is None else (cost.price or 0.0) + event.price


def scorer_of(word: StandingWord) -> VersionedSlot:
    return word.rating.rater, word.rating.version


def scorers(state: RewardState) -> list[JsonDict]:
    """The rewards of each version of each slot: its last one on every subject, generations together."""
    by_scorer: dict[VersionedSlot, list[StandingWord]] = defaultdict(list)
    for word in state.standings.words():
        by_scorer[scorer_of(word)].append(word)
    keys = sorted(by_scorer, key=lambda each: (each[0], each[1] or 0))
    return [_scorer(each, by_scorer[each], state.costs.get(each)) for each in keys]


def _scorer(scorer: VersionedSlot, words: Sequence[StandingWord], cost: ScorerCost | None) -> JsonDict:
    valued = sorted((word.rating.at_us, word.rating.value) for word in words if math.isfinite(word.rating.value))
    values = np.array([value for _, value in valued])
    return {
        "slot": scorer[0],
        "version": scorer[1],
        "subjects": len(words),
        "failed": dict(Counter(word.failed for word in words if word.failed is not None).most_common()),
        "mean": float(values.mean()) if len(values) else None,
        "histogram": _histogram(values) if len(values) else None,
        "trend": _trend(valued),
        "cost": cost
        and {
            "verdicts": len(cost.seconds),
            "tokens": cost.tokens,
            "price": cost.price,
            "seconds_p50": float(np.percentile(cost.seconds, 50)),
            "seconds_p95": float(np.percentile(cost.seconds, 95)),
        },
    }


def _histogram(values: NDArray[np.float64]) -> JsonDict:
    """One bar per value where they are few, else equal steps. A bar is [lowest, highest, number]: both its own."""
    several, counts = np.unique(values, return_counts=True)
    if len(several) <= BARS:
        return {"bars": [[value, value, many] for value, many in zip(several.tolist(), counts.tolist(), strict=True)]}
    edges = np.linspace(several[0], several[-1], BARS + 1)
    number = np.minimum(np.searchsorted(edges, several, "right") - 1, BARS - 1)
    bars = [(several[number == at], counts[number == at]) for at in range(BARS)]
    return {"bars": [[float(own[0]), float(own[-1]), int(many.sum())] for own, many in bars if len(own)]}


def _trend(valued: Sequence[tuple[int, float]]) -> list[list[float]]:
    """Means of equally many rewards each, in order of time: [UTC microseconds of the last, mean]."""
    size = max(-(-len(valued) // POINTS_MAX), min(POINT_WORDS, len(valued)), 1)
    parts = (valued[at : at + size] for at in range(0, len(valued), size))
    return [[part[-1][0], sum(value for _, value in part) / len(part)] for part in parts]


def words_within(
    state: RewardState, scorer: VersionedSlot, low: float, high: float, failed: str | None, limit: int
) -> tuple[list[JsonDict], int]:
    """The newest words of a scorer within bounds, or of those that failed so; and how many there are."""
    own = [
        word
        for word in state.standings.words()
        if scorer_of(word) == scorer
        and (word.failed == failed if failed is not None else low <= word.rating.value <= high)
    ]
    own.sort(key=lambda word: -word.rating.at_us)
    return [_word(word) for word in own[:limit]], len(own)


def _word(word: StandingWord) -> JsonDict:
    g, t, c, step = word.rating.subject
    value = word.rating.value if math.isfinite(word.rating.value) else None
    place = {"g": g, "t": t, "c": c, "step": step}
    return {**place, "value": value, "failed": word.failed, "verdict_id": word.verdict_id, "at_us": word.rating.at_us}

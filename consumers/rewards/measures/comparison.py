"""Two versions of a scorer (or two scorers) beside each other, on what both judged. Pure: scores in, figures out."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, quantiles, stdev
from typing import Any

from claw_r1.schemas.events import Event, RewardAssigned, ScoringFailed

SubjectIds = tuple[str, str, str]
"""group_id, trajectory_id, call_id; of a trajectory the last is empty."""
ScoresBySubject = Mapping[SubjectIds, float]
SIDE = re.compile(r"(?P<slot>[^/@]+/[^@]+)@(?P<version>\d+)(?:\.g(?P<generation>\d+))?")


@dataclass(frozen=True, slots=True)
class ScoredBy:
    """The scorer whose rewards are meant: `judge/style@2`, or of one generation `judge/style@2.g1`."""

    slot: str
    version: int
    generation: int | None = None

    @classmethod
    def parse(cls, text: str) -> "ScoredBy":
        """Raises ValueError."""
        match = SIDE.fullmatch(text)
        if match is None:
            raise ValueError(
                f"a side is SOURCE/NAME@VERSION, or of one generation SOURCE/NAME@VERSION.gN, not {text!r}"
            )
        generation = match["generation"]
        return cls(match["slot"], int(match["version"]), None if generation is None else int(generation))

    def holds(self, event: RewardAssigned | ScoringFailed) -> bool:
        """Returns whether the event is a verdict of this scorer."""
        verdict = event.verdict
        return (
            verdict is not None
            and (f"{event.source}/{event.name}", verdict.version) == (self.slot, self.version)
            and self.generation in (None, verdict.generation)
        )


def scores_of(events: Iterable[Event], side: ScoredBy) -> tuple[dict[SubjectIds, float], int]:
    """The last word of a side on each subject, and on how many it gave up."""
    last: dict[SubjectIds, tuple[tuple[int, int, str], float | None]] = {}
    for event in events:
        if isinstance(event, RewardAssigned | ScoringFailed) and side.holds(event):
            ids = (event.group_id, event.trajectory_id, event.call_id or "")
            rank = (event.revision, event.envelope.occurred_at_us, event.envelope.event_id)
            value = event.value if isinstance(event, RewardAssigned) else None
            last[ids] = max(last.get(ids, (rank, value)), (rank, value), key=lambda word: word[0])
    values = {ids: value for ids, (_, value) in last.items() if value is not None}
    return values, len(last) - len(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The distribution of one side's values on all that it judged."""

    n: int
    mean: float | None
    sd: float | None
    """Sample standard deviation."""
    quantiles: Mapping[str, float]
    """p0, p5, p25, p50, p75, p95, p100, interpolated between values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionComparison:
    """Figures; None where they are not defined."""

    a: Distribution
    b: Distribution
    both: int
    """Subjects that both judged: what follows is about them."""
    mean_change: float | None
    """Mean of b - a."""
    pearson: float | None
    spearman: float | None
    threshold: float | None
    flips: int
    """Subjects on one side of the threshold (value > threshold) by a and on the other by b."""
    pairs: int
    """Pairs of one group's trajectories that neither side holds equal."""
    pairs_reversed: int
    """The pairs of which a and b prefer different members."""
    groups: int
    """Groups with at least two trajectories that both judged."""
    best_changed: tuple[str, ...]
    """Groups none of whose best trajectories by a is best by b."""


def compare(a: ScoresBySubject, b: ScoresBySubject, threshold: float | None = None) -> VersionComparison:
    """threshold: None takes the middle between the lowest and the highest value on what both judged."""
    from scipy.stats import pearsonr, spearmanr  # takes a second to load, and `claw rewards run` needs none of it

    both = sorted(a.keys() & b.keys())
    xs, ys = [a[ids] for ids in both], [b[ids] for ids in both]
    if threshold is None and both:
        threshold = (min(*xs, *ys) + max(*xs, *ys)) / 2
    pairs, turned, groups, changed = _orders(_by_group(a, both), _by_group(b, both))
    return VersionComparison(
        a=distribution(a.values()),
        b=distribution(b.values()),
        both=len(both),
        mean_change=fmean(y - x for x, y in zip(xs, ys, strict=True)) if both else None,
        pearson=_correlation(pearsonr, xs, ys),
        spearman=_correlation(spearmanr, xs, ys),
        threshold=threshold,
        flips=sum((x > threshold) != (y > threshold) for x, y in zip(xs, ys, strict=True))
        if threshold is not None
        else 0,
        pairs=pairs,
        pairs_reversed=turned,
        groups=groups,
        best_changed=tuple(changed),
    )


def distribution(values: Iterable[float]) -> Distribution:
    """Returns the distribution of any values."""
    ordered = sorted(values)
    if not ordered:
        return Distribution(n=0, mean=None, sd=None, quantiles={})
    cuts = quantiles(ordered, n=20, method="inclusive") if len(ordered) > 1 else ordered * 19
    named = {"p0": ordered[0], "p5": cuts[0], "p25": cuts[4], "p50": cuts[9], "p75": cuts[14], "p95": cuts[18]}
    sd = stdev(ordered) if len(ordered) > 1 else None
    return Distribution(n=len(ordered), mean=fmean(ordered), sd=sd, quantiles={**named, "p100": ordered[-1]})


def _by_group(scores: ScoresBySubject, subjects: Iterable[SubjectIds]) -> dict[str, dict[str, float]]:
    """Group -> trajectory -> the mean of what was said of it and of its calls."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for ids in subjects:
        values[ids[0]][ids[1]].append(scores[ids])
    return {group: {name: fmean(each) for name, each in members.items()} for group, members in values.items()}


def _orders(
    a: Mapping[str, Mapping[str, float]], b: Mapping[str, Mapping[str, float]]
) -> tuple[int, int, int, list[str]]:
    """Pairs, reversed ones, groups, groups with another best. Both have the same members."""
    pairs = turned = groups = 0
    changed: list[str] = []
    for group, members in a.items():
        if len(members) < 2:
            continue
        groups += 1
        others = b[group]
        for one, other in combinations(members, 2):
            product = (members[one] - members[other]) * (others[one] - others[other])
            pairs += product != 0
            turned += product < 0
        if not _best(members) & _best(others):
            changed.append(group)
    return pairs, turned, groups, changed


def _best(members: Mapping[str, float]) -> set[str]:
    top = max(members.values())
    return {name for name, value in members.items() if value == top}


def _correlation(measure: Callable[..., Any], xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """measure: of scipy. None where one side says the same of all, or there is one subject."""
    if len(set(xs)) < 2 or len(set(ys)) < 2:
        return None
    value = float(measure(xs, ys).statistic)
    return value if math.isfinite(value) else None

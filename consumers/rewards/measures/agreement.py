"""The agreement of raters: a scorer with people, with its own other version, people with each other. Pure; scipy and
krippendorff do the sums.

A rater is a slot, `source/name`; a subject is what a reward is about. Each pair of ratings of one subject, one from
either side, is an observation; among raters of one side each pair counts in both orders, so the order of names has no
effect, and only equal names are compared: a subject with styles and thumbs is two subjects, and no person is two raters
of one. Intervals are percentiles of a seeded bootstrap over subjects, since ratings of one subject are not independent.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import combinations, product
from typing import NamedTuple

import krippendorff
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from claw_r1.consumers.rewards.measures.rankings import GroupOrders, orders
from claw_r1.consumers.rewards.measures.ratings import RatedSubject, Rating

CATEGORIES_MAX = 20
"""Distinct values up to which they are categories, with kappas and a confusion."""
DOMAIN_MAX = 100
"""Distinct values that alpha takes; more are cut into so many equal steps."""
SUBJECTS_MIN = 5
"""Below this number, chance-corrected figures (kappas, alpha) mean nothing: one subject gives -1, 0 or 1."""
RATERS_MAX = 50
"""Pairs of raters that are listed."""
INTERVAL = (2.5, 97.5)
RatingArray = NDArray[np.float64]


class Observation(NamedTuple):
    """Two ratings of one subject."""

    left: Rating
    right: Rating


class AgreementFigures(Struct, frozen=True, kw_only=True):
    """Null: undefined for so few, or for raters with constant ratings."""

    subjects: int
    """Rated by both."""
    observations: int
    agree: float | None = None
    """Share of observations with equal values."""
    kappa: float | None = None
    """Cohen's; null beyond `CATEGORIES_MAX` values, and below `SUBJECTS_MIN` subjects."""
    weighted_kappa: float | None = None
    """Weights: the squared difference of the values."""
    alpha: float | None = None
    """Krippendorff's, of interval scales, over all raters of both sides; null below `SUBJECTS_MIN` subjects."""
    spearman: float | None = None
    bias: float | None = None
    """Mean of left minus right; among raters of one side null."""


class AgreementReport(Struct, frozen=True, kw_only=True):
    """The answer of `claw rewards agree`."""

    left: str
    right: str
    figures: AgreementFigures
    orders: GroupOrders = GroupOrders()
    """The sides' orders of the trajectories of one group; nothing among raters of one side."""
    unpaired: tuple[int, int]
    """Subjects that only one side rated, or (among raters of one side) only one rater."""
    intervals: dict[str, tuple[float, float]] = {}
    """The intervals of 95 %, by name of the figure."""
    values: list[float] = []
    """Rows and columns of the confusion."""
    confusion: list[list[int]] = []
    """Left by right; empty beyond `CATEGORIES_MAX` values."""
    by_version: dict[str, AgreementFigures] = {}
    by_week: dict[str, AgreementFigures] = {}
    """ISO week (UTC) of the later of the two."""
    raters: dict[str, AgreementFigures] = {}
    """Each two raters, `one with other`, the first so many by name."""


def agreement(
    left: Sequence[Rating],
    right: Sequence[Rating] | None,
    *,
    names: tuple[str, str] = ("left", "right"),
    resamples: int = 1000,
    seed: int = 0,
) -> AgreementReport:
    """right None: the raters of `left` among themselves. names: for the report. resamples: 0 makes no intervals."""
    by_subject = [_by_subject(side, named=right is None) for side in (left, left if right is None else right)]
    common = sorted(by_subject[0].keys() & by_subject[1].keys(), key=str)
    within = right is None
    pairs = [_observations(by_subject[0][subject], by_subject[1][subject], within=within) for subject in common]
    units = [unit for unit in pairs if unit]
    alone = [len(each) - len(units) for each in by_subject]
    report = AgreementReport(
        left=names[0],
        right=names[1],
        figures=figures_of(units, within=within),
        unpaired=(alone[0], 0 if within else alone[1]),
    )
    if not units:
        return report
    sample = _Sample(units, within=within)
    table = sample.table(sample.left, sample.right)
    return replace(
        report,
        orders=report.orders if within else orders([pair for unit in units for pair in unit]),
        intervals=_intervals(sample, report.figures, resamples, seed),
        values=[] if table is None else sample.values,
        confusion=[] if table is None else table.astype(int).tolist(),
        by_version=_split(units, _version, within=within),
        by_week=_split(units, _week, within=within),
        raters=_raters((pair for unit in units for pair in unit), within=within),
    )


class _Sample:
    """Observations as arrays, so that a bootstrap draws indices."""

    def __init__(self, units: Sequence[Sequence[Observation]], *, within: bool) -> None:
        flat = [observation for unit in units for observation in unit]
        self.within, self.subjects, self.values = within, len(units), _values(flat)
        self.left, self.right = (np.array([pair[side].value for pair in flat]) for side in (0, 1))
        self.unit = np.repeat(np.arange(len(units)), [len(unit) for unit in units])
        many = len(self.values) > DOMAIN_MAX
        self.domain = np.linspace(self.values[0], self.values[-1], DOMAIN_MAX) if many else np.array(self.values)
        self.counts = np.zeros((len(units), len(self.domain)))
        for row, unit in enumerate(units):
            for _, value in {(one.by, one.value) for pair in unit for one in pair}:
                self.counts[row, int(np.abs(self.domain - value).argmin())] += 1

    def table(self, left: RatingArray, right: RatingArray) -> RatingArray | None:
        """Counts, left by right; None where values are no categories."""
        size = len(self.values)
        if size > CATEGORIES_MAX:
            return None
        cells = np.searchsorted(self.values, left) * size + np.searchsorted(self.values, right)
        return np.bincount(cells, minlength=size * size).reshape(size, size).astype(np.float64)

    def figures(self, drawn: NDArray[np.int64] | None = None) -> AgreementFigures:
        """drawn: how often each subject counts; None: once."""
        often = np.ones(self.subjects, np.int64) if drawn is None else drawn
        left, right = (np.repeat(side, often[self.unit]) for side in (self.left, self.right))
        scale, enough = np.array(self.values), self.subjects >= SUBJECTS_MIN
        table = self.table(left, right) if enough else None
        return AgreementFigures(
            subjects=self.subjects,
            observations=len(left) // 2 if self.within else len(left),
            agree=float(np.mean(left == right)),
            kappa=None if table is None else kappa(table, 1.0 - np.eye(len(scale))),
            weighted_kappa=None if table is None else kappa(table, (scale[:, None] - scale[None, :]) ** 2),
            alpha=_alpha(np.repeat(self.counts, often, axis=0), self.domain) if enough else None,
            spearman=_spearman(left, right),
            bias=None if self.within else float(np.mean(left - right)),
        )


def figures_of(units: Sequence[Sequence[Observation]], *, within: bool) -> AgreementFigures:
    """units: the observations of each subject; within: both sides are the same raters."""
    return _Sample(units, within=within).figures() if units else AgreementFigures(subjects=0, observations=0)


def kappa(table: RatingArray, weights: RatingArray) -> float | None:
    """Cohen's (1968): 1 - observed / expected disagreement. table: counts, left by right; weights: of disagreements, 0
    on the diagonal."""
    share = table / table.sum()
    expected = float((np.outer(share.sum(1), share.sum(0)) * weights).sum())
    return None if expected == 0 else 1.0 - float((share * weights).sum()) / expected


def _alpha(counts: RatingArray, domain: RatingArray) -> float | None:
    """counts: how many raters gave a subject (row) each value of the domain."""
    if np.count_nonzero(counts.sum(0)) < 2:
        return None
    return float(krippendorff.alpha(value_counts=counts, value_domain=domain, level_of_measurement="interval"))


def _spearman(left: RatingArray, right: RatingArray) -> float | None:
    if len(left) < 2 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return None
    from scipy import stats  # takes a second to load, and `claw rewards run` needs none of it

    return float(stats.spearmanr(left, right).statistic)


def _by_subject(side: Iterable[Rating], *, named: bool) -> dict[tuple[RatedSubject, str], list[Rating]]:
    """named: each name of a slot is a subject of its own."""
    by_subject: dict[tuple[RatedSubject, str], list[Rating]] = defaultdict(list)
    for rating in side:
        by_subject[rating.subject, rating.rater.partition("/")[2] if named else ""].append(rating)
    return by_subject


def _observations(left: Sequence[Rating], right: Sequence[Rating], *, within: bool) -> list[Observation]:
    if within:
        return [Observation(*two) for one, other in combinations(left, 2) for two in ((one, other), (other, one))]
    return [Observation(one, other) for one, other in product(left, right) if one.by != other.by]


def _values(flat: Iterable[Observation]) -> list[float]:
    return sorted({one.value for pair in flat for one in pair})


def _intervals(sample: _Sample, figures: AgreementFigures, resamples: int, seed: int) -> dict[str, tuple[float, float]]:
    if sample.subjects < 2 or not resamples:
        return {}
    chance, once = np.random.default_rng(seed), np.full(sample.subjects, 1 / sample.subjects)
    drawn = [sample.figures(chance.multinomial(sample.subjects, once)) for _ in range(resamples)]
    intervals = {}
    for name in ("agree", "kappa", "weighted_kappa", "alpha", "spearman", "bias"):
        numbers = [number for each in drawn if (number := getattr(each, name)) is not None and math.isfinite(number)]
        if getattr(figures, name) is not None and numbers:
            low, high = np.percentile(numbers, INTERVAL)
            intervals[name] = (float(low), float(high))
    return intervals


def _split(
    units: Sequence[Sequence[Observation]], key: Callable[[Observation], str | None], *, within: bool
) -> dict[str, AgreementFigures]:
    parts: dict[str, list[list[Observation]]] = defaultdict(list)
    for unit in units:
        of_key: dict[str, list[Observation]] = defaultdict(list)
        for pair in unit:
            name = key(pair)
            if name is not None:
                of_key[name].append(pair)
        for name, pairs in of_key.items():
            parts[name].append(pairs)
    return {name: figures_of(parts[name], within=within) for name in sorted(parts)}


def _version(pair: Observation) -> str | None:
    versions = [f"{one.rater}@{one.version}" for one in pair if one.version is not None]
    return " with ".join(versions) or None


def _week(pair: Observation) -> str:
    year, week, _ = datetime.fromtimestamp(max(one.at_us for one in pair) / 1e6, UTC).isocalendar()
    return f"{year}-W{week:02}"


def _raters(flat: Iterable[Observation], *, within: bool) -> dict[str, AgreementFigures]:
    parts: dict[str, list[list[Observation]]] = defaultdict(list)
    for pair in flat:
        if not within or pair.left.rater < pair.right.rater:
            parts[f"{pair.left.rater} with {pair.right.rater}"].append([pair])
    return {name: figures_of(units, within=False) for name, units in sorted(parts.items())[:RATERS_MAX]}

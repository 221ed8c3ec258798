"""How far raters agree, against tables that were computed by hand."""

from datetime import UTC, datetime

import pytest

from claw_r1.consumers.rewards.measures.agreement import agreement, kappa
from claw_r1.consumers.rewards.measures.ratings import Rating, ratings
from claw_r1.consumers.rewards.measures.report import as_text
from claw_r1.schemas.events import VerdictRef
from tests import facts

JUDGE, ADA, BEN, EVE = "judge/style", "human:ada/style", "human:ben/style", "human:eve/style"


def rated(rater: str, values: dict[str, float], *, version: int | None = None, day: int = 1) -> list[Rating]:
    """One rating per subject; a subject is a call."""
    at_us = int(datetime(2026, 6, day, tzinfo=UTC).timestamp() * 1e6)
    return [Rating(("g", "t", call, None), rater, value, version, at_us) for call, value in values.items()]


def table(both: int, left: int, right: int, neither: int) -> tuple[list[Rating], list[Rating]]:
    """Two raters who said 1 and 0: both 1, only the left 1, only the right 1, neither."""
    votes = [(1.0, 1.0)] * both + [(1.0, 0.0)] * left + [(0.0, 1.0)] * right + [(0.0, 0.0)] * neither
    sides = [{f"c{number}": vote[side] for number, vote in enumerate(votes)} for side in (0, 1)]
    return rated(JUDGE, sides[0], version=1), rated(ADA, sides[1])


def test_kappa_bias_and_confusion_of_a_table_computed_by_hand() -> None:
    """20 both, 5 left alone, 10 right alone, 15 neither: observed 0.7, expected 0.5, kappa 0.4 (a textbook's table)."""
    report = agreement(*table(20, 5, 10, 15), resamples=0)
    figures = report.figures
    assert (figures.subjects, figures.observations, figures.agree) == (50, 50, 0.7)
    assert figures.kappa == pytest.approx(0.4)
    assert figures.weighted_kappa == pytest.approx(0.4), "of two values, weights change nothing"
    assert figures.bias == pytest.approx(-0.1)
    assert (report.values, report.confusion) == ([0.0, 1.0], [[15, 10], [5, 20]])
    # phi of a 2 x 2 table: (ad - bc) / sqrt of the four margins; on two values Spearman is the same.
    assert figures.spearman == pytest.approx((20 * 15 - 5 * 10) / (25 * 25 * 30 * 20) ** 0.5)
    # alpha = 1 - (n - 1) D_o / D_e over 100 ratings, 55 ones and 45 zeros: 1 - 99 * 15 * 2 / (2 * 55 * 45)
    assert figures.alpha == pytest.approx(1 - 99 * 30 / (2 * 55 * 45))


def test_weighted_kappa_counts_near_misses_less() -> None:
    """Three values, 0 1 2, by hand, each pair twice: observed weights 4/8, expected 14/8; the far miss costs four times the near one."""
    left = rated(JUDGE, dict(zip("abcdefgh", (0, 1, 2, 2) * 2, strict=True)))
    right = rated(ADA, dict(zip("abcdefgh", (0, 2, 1, 2) * 2, strict=True)))
    figures = agreement(left, right, resamples=0).figures
    expected = sum((one - two) ** 2 for one in (0, 1, 2, 2) for two in (0, 2, 1, 2)) / 16
    assert figures.weighted_kappa == pytest.approx(1 - 0.5 / expected)
    assert figures.kappa == pytest.approx((0.5 - 6 / 16) / (1 - 6 / 16))


def test_alpha_of_several_raters_with_gaps_is_krippendorffs_own_example() -> None:
    """The table of four observers and twelve units of Krippendorff (2011), interval metric: 0.849."""
    observers = {
        "A": "1 2 3 3 2 1 4 1 2 . . .",
        "B": "1 2 3 3 2 2 4 1 2 5 . 3",
        "C": ". 3 3 3 2 3 4 2 2 5 1 .",
        "D": "1 2 3 3 2 4 4 1 2 5 1 .",
    }
    left = [
        rating
        for name, row in observers.items()
        for rating in rated(
            f"human:{name}/x", {f"u{n}": float(cell) for n, cell in enumerate(row.split()) if cell != "."}
        )
    ]
    report = agreement(left, None, resamples=0)
    assert report.figures.alpha == pytest.approx(0.849, abs=0.0005)
    assert (report.figures.subjects, report.unpaired, report.figures.bias) == (11, (1, 0), None)
    assert len(report.raters) == 6


def test_among_themselves_nothing_depends_on_who_is_named_first() -> None:
    """Each pair counts both ways round; the confusion is symmetric, and each two raters are listed once."""
    left = [*rated(ADA, {"a": 1, "b": 0, "c": 1}), *rated(BEN, {"a": 0, "b": 0, "c": 1}), *rated(EVE, {"d": 1})]
    report = agreement(left, None, resamples=0)
    assert (report.figures.subjects, report.figures.observations, report.unpaired) == (3, 3, (1, 0))
    assert report.confusion == [[2, 1], [1, 2]]
    assert report.raters[f"{ADA} with {BEN}"].bias == pytest.approx(1 / 3)


def test_among_themselves_nobody_is_two_raters() -> None:
    """One person's style and thumb are no observation; of two people, style goes with style and thumb with thumb."""
    alone = [*rated(ADA, {"a": 1.0, "b": 0.0}), *rated("human:ada/thumb", {"a": 0.0, "b": 1.0})]
    assert agreement(alone, None, resamples=0).figures.observations == 0
    both = [*alone, *rated(BEN, {"a": 1.0, "b": 0.0}), *rated("human:ben/thumb", {"a": 0.0, "b": 1.0})]
    figures = agreement(both, None, resamples=0).figures
    assert (figures.observations, figures.agree, figures.alpha) == (4, 1.0, None)


def test_a_judge_is_compared_with_each_person_who_spoke() -> None:
    """Two people on one subject are two observations of one subject; who else rated alone is counted."""
    report = agreement(
        rated(JUDGE, {"a": 1, "b": 0, "z": 1}),
        [*rated(ADA, {"a": 1, "b": 0}), *rated(BEN, {"a": 0, "y": 1})],
        resamples=0,
    )
    assert (report.figures.subjects, report.figures.observations, report.unpaired) == (2, 3, (1, 1))
    assert report.figures.agree == pytest.approx(2 / 3)
    assert set(report.raters) == {f"{JUDGE} with {ADA}", f"{JUDGE} with {BEN}"}


def test_versions_and_weeks_are_told_apart() -> None:
    """Versions of the scorer; the week is that of the later word."""
    left = [*rated(JUDGE, {"a": 1, "b": 0}, version=1), *rated(JUDGE, {"c": 1, "d": 0}, version=2, day=9)]
    right = rated(ADA, {"a": 1, "b": 0, "c": 0, "d": 1}, day=3)
    report = agreement(left, right, resamples=0)
    assert {name: figures.agree for name, figures in report.by_version.items()} == {
        f"{JUDGE}@1": 1.0,
        f"{JUDGE}@2": 0.0,
    }
    assert {name: figures.agree for name, figures in report.by_week.items()} == {"2026-W23": 1.0, "2026-W24": 0.0}


@pytest.mark.parametrize(("subjects", "said"), [(1, False), (4, False), (5, True)])
def test_of_few_subjects_nothing_is_said_beyond_chance(subjects: int, said: bool) -> None:
    """Kappas and alpha of one subject would be -1, 0 or 1; they are null, in the parts and intervals too, and a dash for people."""
    left = rated(JUDGE, {f"c{n}": float(n % 2) for n in range(subjects)}, version=1)
    right = rated(ADA, {f"c{n}": float(n % 2 == 0) for n in range(subjects)})
    report = agreement(left, right, resamples=20)
    parts = (report.figures, *report.by_version.values(), *report.by_week.values(), *report.raters.values())
    for figures in parts:
        assert figures.agree == 0.0
        assert [each is not None for each in (figures.kappa, figures.weighted_kappa, figures.alpha)] == [said] * 3
    assert ("kappa" in report.intervals) is said
    (line,) = [line for line in as_text(report) if line.split()[0] == "kappa"]
    assert (line.split()[1] == "-") is not said


def test_intervals_are_seeded_and_hold_the_figure() -> None:
    """The same seed, the same interval; another may differ; more subjects, a narrower one."""
    sides = table(20, 5, 10, 15)
    first, again, other = (agreement(*sides, resamples=200, seed=seed).intervals for seed in (0, 0, 1))
    assert first == again != other
    low, high = first["kappa"]
    assert low < 0.4 < high
    many = agreement(*table(200, 50, 100, 150), resamples=200).intervals["kappa"]
    assert many[1] - many[0] < high - low


def test_what_cannot_be_said_is_null_and_never_a_number() -> None:
    """No common subject, raters who always say the same, values that are no categories."""
    nothing = agreement(rated(JUDGE, {"a": 1}), rated(ADA, {"b": 1}))
    assert (nothing.figures.subjects, nothing.figures.kappa, nothing.intervals, nothing.unpaired) == (
        0,
        None,
        {},
        (1, 1),
    )
    same = agreement(rated(JUDGE, {"a": 1, "b": 1}), rated(ADA, {"a": 1, "b": 1}), resamples=20).figures
    assert (same.agree, same.kappa, same.alpha, same.spearman) == (1.0, None, None, None)
    scale = {f"c{n}": n / 7 for n in range(300)}
    fine = agreement(rated(JUDGE, scale), rated(ADA, scale), resamples=5)
    assert (fine.figures.kappa, fine.confusion) == (None, [])
    assert (fine.figures.alpha, fine.figures.spearman) == (pytest.approx(1.0), pytest.approx(1.0))


def test_kappa_of_no_expected_disagreement_is_null() -> None:
    """Nothing could have gone wrong."""
    import numpy as np

    assert kappa(np.array([[5.0, 0.0], [0.0, 0.0]]), 1 - np.eye(2)) is None


def test_the_winning_slot_of_each_subject_counts() -> None:
    """A verdict before a claim, then by revision; one taken back or given up says nothing, whoever else spoke; patterns choose the raters."""
    verdict = VerdictRef(verdict_id="v", version=2)
    events = [
        facts.reward("g", "t", 0.0, call_id="a", source="judge", name="style", revision=0),
        facts.reward("g", "t", 1.0, call_id="a", source="judge", name="style", revision=1000, verdict=verdict),
        facts.reward("g", "t", 0.5, call_id="a", source="judge", name="style", revision=9999),
        facts.reward("g", "t", 1.0, call_id="b", source="judge", name="style"),
        facts.reward("g", "t", None, call_id="b", source="judge", name="style", revision=5),
        facts.reward("g", "t", 1.0, source="human:ada", name="style"),
        facts.reward("g", "t", 1.0, step_index=1, source="human:ada", name="style"),
        facts.reward("g", "t", 1.0, source="human:ada", name="thumb"),
        facts.curated("g", "t", "a"),
    ]
    assert [(one.subject[2], one.value, one.version) for one in ratings(events, "judge/style")] == [("a", 1.0, 2)]
    assert [(one.rater, one.subject[3]) for one in ratings(events, "human:*/style")] == [(ADA, None), (ADA, 1)]

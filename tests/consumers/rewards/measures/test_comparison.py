"""Two versions beside each other, against figures that were made by hand."""

import math

import pytest

from claw_r1.consumers.rewards.measures.comparison import ScoredBy, compare, distribution, scores_of
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import RewardAssigned, ScoringFailed, VerdictRef


def said(trajectory, value, *, version=1, generation=0, revision=10, name="style", failed=False):
    """One word of judge/NAME on a trajectory of group g."""
    fields = {
        "envelope": envelope("test"),
        "group_id": "g",
        "trajectory_id": trajectory,
        "source": "judge",
        "name": name,
        "revision": revision,
        "verdict": VerdictRef(verdict_id="v", version=version, generation=generation),
    }
    return ScoringFailed(**fields, reason="odd", detail="") if failed else RewardAssigned(**fields, value=value)


def test_the_last_word_of_a_version_counts():
    """Higher revisions replace lower ones, in any order; a failure and a value taken back are no values."""
    events = [
        said("a", 0.1),
        said("a", 0.9, revision=1010, generation=1),
        said("b", 0.4),
        said("b", None, revision=20),
        said("c", None, failed=True),
        said("d", 0.7, version=2),
        said("e", 0.7, name="other"),
    ]
    side = ScoredBy.parse("judge/style@1")
    assert scores_of(events, side) == ({("g", "a", ""): 0.9}, 2)
    assert scores_of(reversed(events), side) == scores_of(events, side)
    assert scores_of(events, ScoredBy.parse("judge/style@1.g0")) == ({("g", "a", ""): 0.1}, 2)


def test_figures_are_those_of_a_sheet_of_paper():
    """Group g: b turns the order of x and y round; group h: equal by a, so no pair; z was judged by a alone."""
    a = {("g", "x", ""): 0.0, ("g", "y", ""): 1.0, ("h", "x", ""): 0.5, ("h", "y", ""): 0.5, ("z", "z", ""): 9.0}
    b = {("g", "x", ""): 1.0, ("g", "y", ""): 0.0, ("h", "x", ""): 0.5, ("h", "y", ""): 0.6}
    result = compare(a, b)
    assert (result.a.n, result.b.n, result.both) == (5, 4, 4)
    assert result.threshold == 0.5
    assert result.flips == 3  # g/x up, g/y down, h/y up
    assert (result.pairs, result.pairs_reversed) == (1, 1)
    assert (result.groups, result.best_changed) == (2, ("g",))  # of h, y is among the best of both
    assert math.isclose(result.mean_change, 0.025)
    assert math.isclose(result.pearson, -0.5 / math.sqrt(0.5 * 0.5075), rel_tol=1e-9)


def test_calls_are_meant_into_their_trajectories():
    """A member's place in its group is the mean of what was said of its calls."""
    a = {("g", "x", "1"): 0.0, ("g", "x", "2"): 1.0, ("g", "y", "1"): 0.4}
    b = {("g", "x", "1"): 0.0, ("g", "x", "2"): 0.2, ("g", "y", "1"): 0.4}
    assert compare(a, b).best_changed == ("g",)


def test_quantiles_of_a_distribution():
    """0 to 20 by one: every twentieth is a cut."""
    values = distribution(range(21))
    assert (values.n, values.mean) == (21, 10.0)
    assert math.isclose(values.sd, math.sqrt(38.5))
    assert values.quantiles == {"p0": 0, "p5": 1, "p25": 5, "p50": 10, "p75": 15, "p95": 19, "p100": 20}


def test_nothing_in_common_is_no_figure():
    """No division by nothing: what is not defined is None."""
    result = compare({("g", "x", ""): 1.0}, {("g", "y", ""): 1.0})
    assert (result.both, result.mean_change, result.pearson, result.threshold, result.flips) == (0, None, None, None, 0)
    assert compare({("g", "x", ""): 1.0}, {("g", "x", ""): 2.0}).spearman is None


@pytest.mark.parametrize("text", ["style@1", "judge/style", "judge/style@x", "judge/style@1.g", "a/b@1 "])
def test_what_is_no_side_is_refused(text):
    """One line that says how a side is written."""
    with pytest.raises(ValueError, match="SOURCE/NAME@VERSION"):
        ScoredBy.parse(text)

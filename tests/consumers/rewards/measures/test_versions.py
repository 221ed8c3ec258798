"""Two versions of a scorer held against each other, by figures that were made by hand."""

import pytest

from claw_r1.consumers.rewards.measures.agreement import agreement
from claw_r1.consumers.rewards.measures.rankings import GroupOrders, orders
from claw_r1.consumers.rewards.measures.ratings import Rating, ratings
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


def pairs(left, right):
    """Observations of (group, trajectory, call) -> value."""
    sides = [{ids: Rating((*ids, None), "judge/x", each[ids], 1, 0) for ids in each} for each in (left, right)]
    return [(sides[0][ids], sides[1][ids]) for ids in sides[0]]


def test_the_last_word_of_a_version_counts():
    """Higher revisions replace lower ones, in any order; a failure and a value taken back are no values."""
    events = [
        said("a", 0.1),
        said("a", 0.9, revision=1010, generation=1),
        said("b", 0.4),
        said("b", None, revision=20),
        said("c", 0.3),
        said("c", None, revision=20, failed=True),
        said("d", 0.7, version=2),
        said("e", 0.7, name="other"),
    ]
    for order in (events, events[::-1]):
        values = {
            side: {one.subject[1]: one.value for one in ratings(order, f"judge/style@{side}")}
            for side in ("1", "1.g0", "1.g1", "2", "3")
        }
        assert values == {"1": {"a": 0.9}, "1.g0": {"a": 0.1}, "1.g1": {"a": 0.9}, "2": {"d": 0.7}, "3": {}}


@pytest.mark.parametrize("name", ["human:ann@9.example/style", "judge/style@x", "judge/style@1.g", "judge/style@1 "])
def test_what_is_no_version_is_part_of_the_name(name):
    """A person's address, or anything else behind the sign."""
    source, _, short = name.partition("/")
    event = RewardAssigned(
        envelope=envelope("test"), group_id="g", trajectory_id="t", source=source, name=short, value=1.0
    )
    assert [one.rater for one in ratings([event], name)] == [name]


def test_versions_of_one_slot_are_two_raters():
    """Each word is held against the other version's and none against itself; where both said the same, alpha counts two."""
    first = {f"t{n}": n % 2 for n in range(6)}
    events = [said(t, float(value)) for t, value in first.items()]
    events += [said(t, float(value or t == "t0"), version=2, revision=20) for t, value in first.items()]
    sides = [ratings(events, f"judge/style@{version}") for version in (2, 1)]
    report = agreement(*sides, resamples=0)
    assert (report.figures.subjects, report.figures.agree, report.figures.bias) == (6, 5 / 6, 1 / 6)
    assert (report.values, report.confusion) == ([0.0, 1.0], [[2, 0], [1, 3]])
    # alpha = 1 - (n - 1) D_o / D_e over 12 ratings, 7 ones and 5 zeros: 1 - 11 * 2 / (2 * 7 * 5)
    assert report.figures.alpha == pytest.approx(1 - 11 * 2 / (2 * 7 * 5))
    assert list(report.by_version) == ["judge/style@2 with judge/style@1"]
    assert (report.orders.groups, report.orders.pairs, report.orders.pairs_reversed) == (1, 6, 0)
    assert agreement(sides[0], sides[0], resamples=0).figures.subjects == 0
    newest = ratings(events, "judge/style")
    assert agreement(newest, sides[0], resamples=0).figures.subjects == 0, "what stands is version 2's"
    assert agreement(newest, sides[1], resamples=0).figures == report.figures


def test_orders_are_those_of_a_sheet_of_paper():
    """Group g: b turns the order of x and y round; group h: equal by a, so no pair."""
    a = {
        ("g", "x", None): 0.0,
        ("g", "y", None): 1.0,
        ("h", "x", None): 0.5,
        ("h", "y", None): 0.5,
        ("z", "z", None): 9.0,
    }
    b = {
        ("g", "x", None): 1.0,
        ("g", "y", None): 0.0,
        ("h", "x", None): 0.5,
        ("h", "y", None): 0.6,
        ("z", "z", None): 0.0,
    }
    # of h, y is among the best of both
    assert orders(pairs(a, b)) == GroupOrders(groups=2, pairs=1, pairs_reversed=1, best_changed=("g",))
    assert orders([]) == GroupOrders()


def test_calls_are_meant_into_their_trajectories():
    """A member's place in its group is the mean of what was said of its calls."""
    a = {("g", "x", "1"): 0.0, ("g", "x", "2"): 1.0, ("g", "y", "1"): 0.4}
    b = {("g", "x", "1"): 0.0, ("g", "x", "2"): 0.2, ("g", "y", "1"): 0.4}
    assert orders(pairs(a, b)).best_changed == ("g",)

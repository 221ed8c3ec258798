"""Orders of a group's members by two raters, by figures that were made by hand."""

from claw_r1.consumers.rewards.measures.rankings import GroupOrders, orders
from claw_r1.consumers.rewards.measures.ratings import Rating


def pairs(left, right):
    """Observations of (group, trajectory, call) -> value."""
    sides = [{ids: Rating((*ids, None), "judge/x", each[ids], 1, 0) for ids in each} for each in (left, right)]
    return [(sides[0][ids], sides[1][ids]) for ids in sides[0]]


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


def test_a_rating_counts_once_however_many_raters_it_is_held_against():
    """Of x the judge's mean is 0.5, below y's: that two people rated one call of it, and one the other, moves nothing."""

    def rating(trajectory, call, rater, value):
        return Rating(("g", trajectory, call, None), rater, value, None, 0)

    judge = [rating("x", "1", "judge/s", 1.0), rating("x", "2", "judge/s", 0.0), rating("y", "1", "judge/s", 0.6)]
    ada = [rating("x", "1", "ada", 0.5), rating("x", "2", "ada", 0.5), rating("y", "1", "ada", 0.9)]
    same = GroupOrders(groups=1, pairs=1)
    assert orders([*zip(judge, ada, strict=True)]) == same
    assert orders([*zip(judge, ada, strict=True), (judge[0], rating("x", "1", "ben", 0.5))]) == same

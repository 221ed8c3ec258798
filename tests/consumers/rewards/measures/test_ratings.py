"""Two versions of a scorer held against each other, by figures that were made by hand."""

import pytest

from claw_r1.consumers.rewards.measures.agreement import agreement
from claw_r1.consumers.rewards.measures.ratings import ratings
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

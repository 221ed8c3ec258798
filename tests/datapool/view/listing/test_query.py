"""Filters, pages and counts over a view's rows."""

import pytest

from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.listing.query import find_groups, find_steps, find_trajectories, stats
from tests import facts
from tests.trainer.pooled import group, pooled

SCORES = {"entropy@1": 0.3, "tool_calls@2": None}
ROWS = pooled(
    [
        *group("a", [0.0, 1.0], tags=("maths",), version=1),
        *group("b", [0.5, 0.5], channel="probe", version=2),
        facts.call("c", "lönely", "x", agent="ann", tags=("one", "two"), channel="train"),
        facts.reward("a", "t1", 3.0, call_id="c0", source="judge"),
        facts.curated("a", "t0", "c1", quality=0.4, note="Too LONG", tags=("bad",), scores=SCORES),
        facts.curated("b", "t0", "c0", trainable=False),
    ]
).pool


def steps(**wanted):
    return [f"{s.group_id}/{s.trajectory_id[:2]}/{s.call_id}" for s in find_steps(ROWS, PoolFilter(**wanted))]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"group": "c"}, ["c/lö/x"]),
        ({"trajectory": "t0", "group": "a"}, ["a/t0/c0", "a/t0/c1"]),
        ({"channel": "probe"}, []),
        ({"agent": "ann"}, ["c/lö/x"]),
        ({"tag": ("one", "two")}, ["c/lö/x"]),
        ({"tag": ("on",)}, []),
        ({"tag": ("bad",)}, ["a/t0/c1"]),
        ({"tag": ("bad", "maths")}, ["a/t0/c1"]),
        ({"tag": ("maths",), "trajectory": "t1"}, ["a/t1/c0", "a/t1/c1"]),
        ({"score": ("entropy@1>=0.3",)}, ["a/t0/c1"]),
        ({"score": ("entropy@1>=0.1", "entropy@1<=0.2")}, []),
        ({"score": ("tool_calls@2>=0",)}, []),
        ({"score": ("entropy@2>=0",)}, []),
        ({"quality_max": 0.4}, ["a/t0/c1"]),
        ({"quality_min": 0.5}, []),
        ({"reward_min": 3.0}, ["a/t1/c0"]),
        ({"trainable": False}, ["b/t0/c0"]),
        ({"version_max": 1, "trajectory": "t1"}, ["a/t1/c0", "a/t1/c1"]),
        ({"version_min": 2, "group": "a"}, []),
        ({"run": "nobody"}, []),
        ({"status": "completed", "group": "c"}, ["c/lö/x"]),
        ({"reason": "curated_out"}, ["b/t0/c0"]),
        ({"reason": "curated"}, []),
        ({"finish": "length"}, []),
        ({"finish": "stop", "group": "c"}, ["c/lö/x"]),
        ({"text": "too long"}, ["a/t0/c1"]),
        ({"text": "X"}, ["c/lö/x"]),
        ({"group": "nobody"}, []),
    ],
)
def test_a_filter_finds_what_it_says(wanted, found):
    """Every field narrows; a tag is a whole tag; text is sought in any case."""
    assert steps(**wanted) == found


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_hold_every_step_once_and_in_order(limit):
    """Going on behind the last key neither repeats nor misses a row, with a filter that the store cannot answer, too."""
    for wanted in (PoolFilter(), PoolFilter(text="t0")):
        everything = find_steps(ROWS, wanted)
        seen, after = [], ()
        while page := find_steps(ROWS, wanted, after, limit):
            assert len(page) <= limit
            seen += page
            after = (page[-1].group_id, page[-1].trajectory_id, page[-1].call_id)
        assert seen == everything
        assert len(everything) == (9 if wanted.text is None else 4)


@pytest.mark.parametrize(
    ("wanted", "trajectories", "groups"),
    [
        ({}, ["a/t0", "a/t1", "b/t0", "b/t1", "c/lönely"], ["a", "b", "c"]),
        ({"group": "b"}, ["b/t0", "b/t1"], ["b"]),
        ({"trajectory": "t1"}, ["a/t1", "b/t1"], ["a", "b"]),
        ({"channel": "probe"}, [], ["b"]),
        ({"agent": "ann"}, ["c/lönely"], ["c"]),
        ({"tag": ("maths",)}, ["a/t0", "a/t1"], ["a"]),
        ({"tag": ("maths", "bad")}, ["a/t0"], ["a"]),
        ({"tag": ("bad", "one")}, [], []),
        ({"trainable": False}, ["b/t0"], ["b"]),
        ({"trainable": True, "group": "c"}, ["c/lönely"], ["c"]),
        ({"quality_min": 0.4}, ["a/t0"], ["a"]),
        ({"quality_max": 0.3}, [], []),
        ({"quality_max": 0.4, "trainable": False}, [], []),
        ({"score": ("entropy@1<=0.3",)}, ["a/t0"], ["a"]),
        ({"ready": False}, ["c/lönely"], ["c"]),
        ({"status": "open"}, ["c/lönely"], ["c"]),
        ({"status": "completed", "group": "a"}, ["a/t0", "a/t1"], ["a"]),
        ({"reason": "open"}, ["c/lönely"], []),
        ({"finish": "stop", "group": "b"}, ["b/t0", "b/t1"], ["b"]),
        ({"time": "2020-02-02"}, [], []),
        ({"reward_min": 1.0}, ["a/t1"], ["a"]),
        ({"reward_max": 0.5}, ["a/t0", "b/t0", "b/t1"], ["b"]),
        ({"version_min": 2}, ["b/t0", "b/t1", "c/lönely"], ["b"]),
        ({"version_max": 1}, ["a/t0", "a/t1"], ["a"]),
        ({"text": "LÖN"}, ["c/lönely"], []),
        ({"text": "t1", "group": "a"}, ["a/t1"], []),
        ({"text": "MATH"}, [], ["a"]),
    ],
)
def test_trajectories_and_groups_are_filtered_by_their_fields_and_their_steps(wanted, trajectories, groups):
    """Return and mean, readiness, channel, members; what steps decide, one step must meet together."""
    found = find_trajectories(ROWS, PoolFilter(**wanted))
    assert [f"{row.group_id}/{row.trajectory_id}" for row in found] == trajectories
    assert [row.group_id for row in find_groups(ROWS, PoolFilter(**wanted))] == groups


def test_pages_of_trajectories_and_groups_go_on_behind_a_key():
    """Neither the row of the key nor one before it comes again."""
    assert [row.trajectory_id for row in find_trajectories(ROWS, PoolFilter(group="b"), ("b", "t0"), 5)] == ["t1"]
    assert [row.group_id for row in find_groups(ROWS, PoolFilter(), ("a",), 1)] == ["b"]


def test_counts_are_those_of_the_rows():
    """Totals, channels and each reason why something is no data."""
    counted = stats(ROWS)
    assert counted["steps"] == {
        "total": 9,
        "trainable": 8,
        "curated": 2,
        "prompt_tokens": sum(step.prompt_length for step in find_steps(ROWS, PoolFilter())),
        "response_tokens": sum(step.response_length for step in find_steps(ROWS, PoolFilter())),
        "channels": {"train": 9},
        "not_trainable": {"curated_out": 1},
    }
    assert counted["groups"]["total"] == 3
    assert counted["trajectories"]["status"] == {"completed": 4, "open": 1}
    assert counted["trajectories"]["not_ready"] == {"open": 1}


@pytest.mark.parametrize(
    "wanted",
    [
        {"group": "a"},
        {"trajectory": "t1"},
        {"channel": "train"},
        {"channel": "probe"},
        {"agent": "ann"},
        {"tag": ("maths",)},
        {"trainable": False},
        {"quality_min": 0.1},
        {"score": ("entropy@1>=0.1",)},
        {"reward_min": 1.0},
        {"version_max": 1},
        {"text": "t0"},
    ],
)
def test_counts_are_of_what_the_lists_show(wanted):
    """Every filter narrows all three kinds as it narrows their lists, also where the store cannot answer it alone."""
    counted, found = stats(ROWS, PoolFilter(**wanted)), find_steps(ROWS, PoolFilter(**wanted))
    assert counted["steps"]["total"] == len(found)
    assert counted["steps"]["response_tokens"] == sum(step.response_length for step in found)
    assert counted["trajectories"]["total"] == len(find_trajectories(ROWS, PoolFilter(**wanted)))
    assert counted["groups"]["total"] == len(find_groups(ROWS, PoolFilter(**wanted)))
    assert stats(ROWS, PoolFilter(**wanted), found) == counted


def test_what_has_no_steps_has_its_own_tags():
    """A group that was opened, and a trajectory that was started, before the first call."""
    rows = pooled(
        [
            facts.opened("early", tags=("maths",)),
            facts.opened("both", tags=("maths",)),
            facts.started("both", "t", tags=("hard",)),
        ]
    ).pool
    assert [row.group_id for row in find_groups(rows, PoolFilter(tag=("maths",)))] == ["both", "early"]
    assert [row.group_id for row in find_groups(rows, PoolFilter(tag=("maths", "hard")))] == ["both"]
    assert [row.trajectory_id for row in find_trajectories(rows, PoolFilter(tag=("maths", "hard")))] == ["t"]


def test_a_tombstone_and_a_forgotten_group_leave_nothing_in_the_store():
    """Tombstones remove rows, and what is forgotten leaves nothing in the store."""
    made = pooled([*group("a", [0.0, 1.0]), *group("b", [0.0, 1.0]), facts.evicted("b", "t0")]).pool
    assert [s.trajectory_id for s in find_steps(made, PoolFilter(group="b"))] == ["t1", "t1"]
    made.forget("a")
    assert find_steps(made, PoolFilter(group="a")) == []
    assert made.store.named(["a"]) == [] != made.store.named(["b"])

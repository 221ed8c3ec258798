"""What a reader of three topics is offered, and when."""

import itertools
import random
import tracemalloc

import pytest

from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import changes
from claw_r1.datapool.view.rows import PoolRows
from tests import facts

CALL = facts.call("a/b", "t", "c")
HISTORY = [facts.opened("a/b", expected_size=1), CALL, facts.completed("a/b", "t", calls=1, reward=0.5)]


def writes(history):
    """Rows in the order in which the streams write them, one flush per fact."""
    state, image, written = None, None, []
    for fact, position in facts.placed(history):
        state = fold(state, fact, position)
        image, rows = changes(image, state)
        written += [(key.topic, key.key, row and row.value) for key, row in rows.items()]
    return written


def view_of(rows, wanted=None):
    view = PoolRows(wanted)
    for topic, key, value in rows:
        view.apply(topic, key, value)
    return view


def test_a_whole_group_is_offered_with_all_its_rows():
    """Everything there: the group is ready and its parts can be read."""
    view = view_of(writes(HISTORY))
    (group,) = view.groups()
    assert group.ready
    assert view.trajectory("a/b", "t").return_total == 0.5
    assert [step.call_id for step in view.steps("a/b", "t")] == ["c"]


def test_members_of_one_moment_are_offered_ready_or_not():
    """A reader that trains nothing asks for all members of a row it has seen; once the pool moved on, there is no answer."""
    view = view_of(writes(HISTORY[:2]))
    (group,) = view.groups()
    (row,) = view.trajectories(group)
    assert (row.trajectory_id, row.ready, view.members(group)) == ("t", False, [])
    for topic, key, value in writes(HISTORY):
        view.apply(topic, key, value)
    assert view.trajectories(group) is None
    (group,) = view.groups()
    assert [row.ready for row in view.trajectories(group)] == [True]


@pytest.mark.parametrize("late", ["datapool.steps", "datapool.trajectories", "datapool.groups"])
def test_a_topic_that_lags_behind_hides_the_group(late):
    """Rows of different moments are never offered as one ready group."""
    history = [*HISTORY[:2], facts.reward("a/b", "t", call_id="c"), *HISTORY[2:]]
    before, after = writes(history[:2]), writes(history)
    view = view_of([row for row in after if row[0] != late] + [row for row in before if row[0] == late])
    assert view.group("a/b") is None
    assert view_of(after).group("a/b").ready


def test_a_ready_group_without_its_step_is_not_offered():
    """A step is part of it."""
    rows = [row for row in writes(HISTORY) if row[0] != "datapool.steps"]
    assert view_of(rows).group("a/b") is None


def test_any_interleaving_of_the_topics_ends_with_the_same_group():
    """Order holds within a topic only."""
    rows = writes(HISTORY)
    topics = {topic: [row for row in rows if row[0] == topic] for topic in {row[0] for row in rows}}
    picks = [topic for topic, mine in topics.items() for _ in mine]
    for seed in range(50):
        random.Random(seed).shuffle(picks)
        queues = {topic: iter(mine) for topic, mine in topics.items()}
        view = view_of(next(queues[topic]) for topic in picks)
        assert view.group("a/b") == view_of(rows).group("a/b")


def test_a_forgotten_group_stays_away():
    """Memory of a trained group is given back, and its late rows are not taken in again."""
    rows = writes(HISTORY)
    view = view_of(rows)
    view.forget("a/b")
    for row in rows:
        view.apply(*row)
    assert (view.groups(), view.steps("a/b", "t")) == ([], [])


def test_tombstones_alone_make_no_group():
    """They name no run, so that a view reads those of other runs' groups, too: evictions of these leave nothing in memory."""
    view = view_of((topic, key, None) for topic, key, _ in writes(HISTORY))
    assert view.snapshot().groups == []


def test_forgotten_groups_take_no_memory():
    """A run that trains for months forgets millions of groups: not even their ids stay."""
    view, names = PoolRows(), [f"group-{number}" for number in range(5000)]
    tracemalloc.start()
    try:
        for name in names:
            view.forget(name)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 10 * len(names)


def test_groups_that_nobody_wants_leave_no_rows():
    """A filter by run drops the group's rows whatever came first."""
    rows = writes(HISTORY)
    for order in itertools.islice(itertools.permutations(rows), 200):
        assert view_of(order, lambda record: record.run_id == "other").steps("a/b", "t") == []


def test_an_evicted_trajectory_leaves_no_steps():
    """Tombstones remove them."""
    view = view_of(writes([*HISTORY, facts.evicted("a/b", "t")]))
    assert view.step("a/b", "t", "c") is None
    assert view.group("a/b").members[0].status == "evicted"


@pytest.mark.parametrize("listed", [False, True])
def test_of_an_evicted_group_only_its_stub_is_kept_in_whatever_order_the_topics_are_read(listed):
    """Nothing of its trajectories stays in memory; one that only a tombstone speaks of is none."""
    by_topic = {}
    for row in writes([*HISTORY, facts.call("a/b", "u", "d"), facts.evicted_group("a/b")]):
        by_topic.setdefault(row[0], []).append(row)
    for order in itertools.permutations(by_topic.values()):
        view = PoolRows(listed=listed)
        for topic, key, value in [*itertools.chain(*order), ("datapool.trajectories", b"a%2Fb/nobody", None)]:
            view.apply(topic, key, value)
        assert [row.reasons for row in view.group_rows()] == [("evicted",)]
        assert list(view.trajectory_rows()) == list(view.store.named(["c", "d"])) == []
        assert view._groups["a/b"].trajectories == {}
        assert [group.group_id for group in view.groups()] == ["a/b"]


def test_rows_that_held_tokens_a_second_time_are_passed_over():
    """Pools of fold versions before 11 have them, under longer keys; they are never decoded."""
    view = view_of([*writes(HISTORY), ("datapool.steps", b"a%2Fb/t/c/tokens", b"not looked at")])
    assert view.groups() == view_of(writes(HISTORY)).groups() != []
    assert [step.call_id for step in view.steps("a/b", "t")] == ["c"]

"""Lists by any column: an order of all rows, what stands beside a row, counts per value."""

import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.datapool.view.listing.frozen_order import FrozenOrder, OrderedRow
from claw_r1.datapool.view.listing.pages import COLUMNS, count, facets, neighbours
from claw_r1.datapool.view.listing.pool_filter import EVERYTHING, PoolFilter
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.eventlog.memory import MemoryLog
from tests import facts
from tests.trainer.pooled import SETTINGS, apply_to, group

KINDS = sorted(COLUMNS)
PLACES = [(kind, name) for kind in KINDS for name in COLUMNS[kind]]
HOSTILE = ["a", "a\0", "a\0b", "ab", "ä", "/", "%2F", "", "a\0\xff"]


def listed(*history, rows: PoolRows | None = None) -> PoolRows:
    rows = PoolRows(listed=True) if rows is None else rows
    apply_to(rows, MemoryLog(SETTINGS), history)
    return rows


def full_pool(groups: int = 12, seed: int = 0) -> PoolRows:
    """Groups of different sizes, returns, versions and words; many values are equal, and some are missing."""
    dice, history = random.Random(seed), []
    for number in range(groups):
        rewards = [dice.choice([None, 0.0, 0.5, 1.0, -1.0, float(number)]) for _ in range(dice.randint(1, 4))]
        tags = tuple(dice.sample(["x", "y", "z"], dice.randint(0, 2)))
        task, agent = dice.choice([None, '"t1"', '"t2"']), dice.choice([None, "ann", "bob"])
        name = f"g{dice.randint(0, 999)}-{number}"
        history += group(
            name, rewards, version=dice.randint(0, 3), at_us=dice.randint(0, 4), tags=tags, task=task, agent=agent
        )
        history += [facts.curated(name, "t0", "c0", quality=dice.random())] if dice.random() < 0.5 else []
        history += [facts.call(f"lone{number}", "t", "c", agent=agent)] if dice.random() < 0.3 else []
    return listed(*history)


POOL = full_pool()


def everything(
    rows: PoolRows, kind: str, pool_filter: PoolFilter = EVERYTHING, *, sort: str = "id", descending: bool = False
) -> list[OrderedRow]:
    """All rows of a list, with all columns."""
    order = FrozenOrder(rows, kind, pool_filter, sort=sort, descending=descending)
    return order.rows(rows, 0, len(order), [name for name, column in COLUMNS[kind].items() if column.type != "ids"])


def ids_of(*question, **order) -> list[tuple[str, ...]]:
    return [row.ids for row in everything(*question, **order)]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("kind", "name"), PLACES)
def test_every_column_is_an_order_of_all_rows(kind, name, descending):
    """Values in order, what has none last, equal ones by their ids; parts of it are that order cut."""
    rows = everything(POOL, kind, sort=name, descending=descending)
    assert len(rows) == count(POOL, kind)
    ids = [row.ids for row in rows]
    if name == "id":
        assert ids == sorted(ids, reverse=descending)
    else:
        values = [row.columns[name] for row in rows]
        several = sorted({value for value in values if value is not None}, reverse=descending)
        places = {value: place for place, value in enumerate([*several, None])}
        keys = [(places[row.columns[name]], row.ids) for row in rows]
        assert keys == sorted(keys)
    order = FrozenOrder(POOL, kind, EVERYTHING, sort=name, descending=descending)
    assert [row.ids for at in range(0, len(ids), 4) for row in order.rows(POOL, at, 4, [])] == ids


@pytest.mark.parametrize(("kind", "name"), PLACES)
def test_neighbours_are_those_of_the_list(kind, name):
    """`[` and `]` go through the list as it stands there, in both directions."""
    for descending in (False, True):
        ids = ids_of(POOL, kind, sort=name, descending=descending)
        for at, own in enumerate(ids):
            beside = ids[at - 1] if at else None, ids[at + 1] if at + 1 < len(ids) else None
            assert neighbours(POOL, kind, own, sort=name, descending=descending) == (*beside, at, len(ids))


def test_neighbours_within_a_filter():
    """Of a row that the filter does not find those between which it would stand; of one that is not there none."""
    rows = listed(*group("a", [0.0, 1.0]), *group("b", [0.5, 0.5], channel="val"), *group("c", [0.2]))
    assert neighbours(rows, "groups", ("b",), PoolFilter(channel="train")) == (("a",), ("c",), None, 2)
    assert neighbours(rows, "trajectories", ("b", "t0"), PoolFilter(trajectory="t1"), sort="return") == (
        None,
        ("b", "t1"),
        None,
        2,
    )
    rows.forget("b")
    assert neighbours(rows, "groups", ("b",)) == (None, None, None, 2)
    assert neighbours(rows, "groups", ("nobody",)) == (None, None, None, 2)


@given(st.lists(st.tuples(st.sampled_from(HOSTILE), st.sampled_from(HOSTILE)), min_size=1, max_size=12, unique=True))
def test_any_ids_are_in_order_and_are_told_apart(places):
    """Null characters and slashes: the order is that of the ids, and each finds itself."""
    rows = PoolRows(listed=True)
    for place in places:
        listed(facts.call(*place, "c"), rows=rows)
    assert ids_of(rows, "trajectories") == sorted(places)
    for group_id, trajectory_id in places:
        own = PoolFilter(group=group_id, trajectory=trajectory_id)
        assert ids_of(rows, "trajectories", own) == [(group_id, trajectory_id)]
        assert ids_of(rows, "steps", own) == [(group_id, trajectory_id, "c")]
        named = sorted(place for place in places if place[1] == trajectory_id)
        assert ids_of(rows, "trajectories", PoolFilter(trajectory=trajectory_id)) == named


def test_counts_per_value():
    """The most frequent first; each word of several; what has no value is not counted."""
    rows = listed(
        *group("a", [0.0, 1.0], tags=("maths",), version=1),
        *group("b", [0.5, 0.5, 0.5], tags=("maths", "hard"), version=2, channel="val"),
        facts.started("b", "t0", tags=("mine",)),
        facts.call("c", "t", "x", agent="ann"),
    )
    ask = partial(facets, rows, "trajectories", EVERYTHING)
    assert ask("channel") == {"train": 6}
    assert list(ask("return").items()) == [(0.5, 3), (0.0, 1), (1.0, 1)]
    assert ask("tags") == {"maths": 5, "hard": 3, "mine": 1}
    assert ask("agent") == {"ann": 1}
    assert ask("ready") == {True: 5, False: 1}
    assert ask("status", 1) == {"completed": 5}
    assert ask("version_min") == {2: 3, 1: 2, 3: 1}
    assert facets(rows, "groups", PoolFilter(channel="val"), "zero_variance") == {True: 1}
    assert facets(rows, "trajectories", PoolFilter(ready=False), "reasons") == {"open": 1}


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (lambda: everything(POOL, "groups", sort="length"), ["groups have no column 'length'", "deviation", "doubt"]),
        (lambda: count(POOL, "people"), ["'people'", "groups, trajectories, steps"]),
        (lambda: facets(POOL, "steps", EVERYTHING, "return"), ["steps have no column 'return'", "reward"]),
        (lambda: facets(POOL, "steps", EVERYTHING, "id"), ["another column"]),
        (lambda: neighbours(POOL, "steps", ("a", "b", "c"), sort="x"), ["'x'"]),
        (lambda: count(PoolRows(), "groups"), ["listed=True"]),
    ],
)
def test_a_question_that_is_none_says_why(question, words):
    """A sentence that a person can act on."""
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  # the words are looked at below
        question()
    assert all(word in str(refusal.value) for word in words)


def test_values_without_end_are_in_order():
    """Rewards may be infinite; what has none still comes last."""
    rows = listed(
        *(facts.reward(f"g{n}", "t", value, source="s") for n, value in enumerate([float("inf"), 0.0, -float("inf")])),
        facts.started("g9", "t"),
    )
    assert ids_of(rows, "trajectories", sort="return")[-1] == ("g9", "t")
    assert ids_of(rows, "trajectories", sort="return", descending=True)[-1] == ("g9", "t")

"""Pages by any column: an order of all rows, cursors that outlive changes, and what stands beside a row."""

import base64
import random
from contextlib import nullcontext
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.datapool.view.listing.pages import COLUMNS, count, facets, neighbours, page
from claw_r1.datapool.view.pool_filter import EVERYTHING, PoolFilter
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


def pages(rows, kind, limit, **order):
    """Ids of all pages, forwards."""
    ids, after = [], None
    while True:
        one = page(rows, kind, after=after, limit=limit, **order)
        assert (one.before, one.total) == (len(ids), count(rows, kind))
        ids += [row.ids for row in one.rows]
        if one.next is None:
            return ids
        after = one.next


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("kind", "name"), PLACES)
def test_every_column_is_an_order_of_all_rows(kind, name, descending):
    """Values in order, what has none last, equal ones by their ids; pages of any size are that order cut; backwards, too."""
    everything = page(POOL, kind, sort=name, descending=descending, limit=1000).rows
    if name == "id":
        assert [row.ids for row in everything] == sorted((row.ids for row in everything), reverse=descending)
    else:
        values = [row.columns[name] for row in everything]
        several = sorted({value for value in values if value is not None}, reverse=descending)
        places = {value: place for place, value in enumerate([*several, None])}
        keys = [(places[row.columns[name]], row.ids) for row in everything]
        assert keys == sorted(keys)
    ids = [row.ids for row in everything]
    for limit in (1, 4, 1000):
        assert pages(POOL, kind, limit, sort=name, descending=descending) == ids
    ask = partial(page, POOL, kind, sort=name, descending=descending, limit=3)
    second = ask(after=ask().next)
    assert [row.ids for row in second.rows] == ids[3:6]
    assert [row.ids for row in ask(after=second.previous).rows] == ids[:3]
    assert ask().previous is None
    assert [row.ids for row in ask(offset=len(ids) - 2).rows] == ids[-2:]
    assert [row.ids for row in ask(offset=2, after=ask().next).rows] == ids[5:8]


@pytest.mark.parametrize(("kind", "name"), PLACES)
def test_neighbours_are_those_of_the_list(kind, name):
    """`[` and `]` go through the list as it stands there."""
    ids = [row.ids for row in page(POOL, kind, sort=name, limit=1000).rows]
    for at, own in enumerate(ids):
        before, behind = ids[at - 1] if at else None, ids[at + 1] if at + 1 < len(ids) else None
        assert neighbours(POOL, kind, own, sort=name) == (before, behind, at, len(ids))


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


@given(st.integers(0, 1000), st.sampled_from(PLACES), st.booleans(), st.integers(1, 5))
def test_rows_that_come_meanwhile_neither_repeat_nor_hide_others(seed, place, descending, limit):
    """Between two pages groups come and a group goes: what stayed is there once."""
    rows, (kind, name) = full_pool(6, seed), place
    ask = partial(page, rows, kind, sort=name, descending=descending)
    before = {row.ids: row.columns.get(name) for row in ask(limit=1000).rows}
    seen, after, number = [], None, 0
    while True:
        one = ask(after=after, limit=limit)
        seen += [row.ids for row in one.rows]
        if one.next is None:
            break
        after, number = one.next, number + 1
        if number < 4:
            listed(*group(f"new{seed}-{number}", [0.5, float(number)], tags=("y",), agent="cat"), rows=rows)
            rows.forget(one.rows[-1].ids[0])
    stayed = {row.ids for row in ask(limit=1000).rows if before.get(row.ids) == row.columns.get(name)} & before.keys()
    unmoved = {ids for ids in stayed if COLUMNS[kind][name].read is not None or name == "id"}
    assert len(seen) == len(set(seen))
    assert unmoved <= set(seen)


@given(st.lists(st.tuples(st.sampled_from(HOSTILE), st.sampled_from(HOSTILE)), min_size=1, max_size=12, unique=True))
def test_any_ids_are_in_order_and_are_told_apart(places):
    """Null characters and slashes: the order is that of the ids, and each finds itself."""
    rows = PoolRows(listed=True)
    for place in places:
        listed(facts.call(*place, "c"), rows=rows)
    assert pages(rows, "trajectories", 3) == sorted(places)
    for group_id, trajectory_id in places:
        own = PoolFilter(group=group_id, trajectory=trajectory_id)
        assert [row.ids for row in page(rows, "trajectories", own).rows] == [(group_id, trajectory_id)]
        assert [row.ids for row in page(rows, "steps", own).rows] == [(group_id, trajectory_id, "c")]
        named = sorted(place for place in places if place[1] == trajectory_id)
        assert [row.ids for row in page(rows, "trajectories", PoolFilter(trajectory=trajectory_id)).rows] == named


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
        (lambda: page(POOL, "groups", sort="length"), ["groups have no column 'length'", "deviation", "doubt"]),
        (lambda: page(POOL, "people"), ["'people'", "groups, trajectories, steps"]),
        (lambda: count(POOL, "people"), ["'people'"]),
        (lambda: facets(POOL, "steps", EVERYTHING, "return"), ["steps have no column 'return'", "reward"]),
        (lambda: facets(POOL, "steps", EVERYTHING, "id"), ["another column"]),
        (lambda: neighbours(POOL, "steps", ("a", "b", "c"), sort="x"), ["'x'"]),
        (lambda: page(POOL, "groups", limit=0), ["1 to 1000"]),
        (lambda: page(POOL, "groups", columns=["x"]), ["'x'"]),
        (lambda: page(POOL, "groups", after=page(POOL, "groups", limit=1).next, sort="return"), ["groups by id"]),
        (lambda: page(PoolRows(), "groups"), ["listed=True"]),
    ],
)
def test_a_question_that_is_none_says_why(question, words):
    """A sentence that a person can act on."""
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  # the words are looked at below
        question()
    assert all(word in str(refusal.value) for word in words)


@pytest.mark.parametrize(
    "text", ["", "x", "W10", "bnVsbA", "é", "e30", "WzEsMiwzLDQsNSw2XQ", *["A" * n for n in (1, 5, 400)]]
)
def test_a_cursor_that_is_none_is_refused(text):
    """Whoever types one into the address gets a sentence."""
    with pytest.raises(ValueError, match="cursor"):
        page(POOL, "groups", after=text)


@pytest.mark.parametrize("value", ['"word"', "[1]", "{}", '["x"]', "1e999"])
@pytest.mark.parametrize("name", ["return", "agent", "tags", "id"])
def test_a_cursor_of_another_type_is_refused_or_a_place(name, value):
    """JSON of the right form with a value of another type ends in no traceback."""
    text = base64.urlsafe_b64encode(f'["groups","{name}",false,false,{value},["a"]]'.encode()).decode()
    with pytest.raises(ValueError, match="cursor") if not fits(name, value) else nullcontext():
        page(POOL, "groups", sort=name, after=text)


def fits(name, value):
    """Whether it is a place among the values of the column."""
    return name == "id" or (name, value) in {("return", "1e999"), ("agent", '"word"'), ("tags", '["x"]')}


def test_values_without_end_are_in_order():
    """Rewards may be infinite; what has none still comes last."""
    rows = listed(
        *(facts.reward(f"g{n}", "t", value, source="s") for n, value in enumerate([float("inf"), 0.0, -float("inf")])),
        facts.started("g9", "t"),
    )
    assert pages(rows, "trajectories", 1, sort="return")[-1] == ("g9", "t")
    assert pages(rows, "trajectories", 1, sort="return", descending=True)[-1] == ("g9", "t")

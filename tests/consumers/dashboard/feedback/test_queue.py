"""The order in which people are asked: a function of rows, words and address."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from claw_r1.consumers.dashboard.feedback import queues
from claw_r1.consumers.dashboard.feedback.bodies import QueueQuery
from claw_r1.consumers.dashboard.feedback.queue import (
    is_for,
    is_open,
    pair_items,
    sides,
    silent,
    single_items,
    with_feedback,
)
from claw_r1.consumers.dashboard.feedback.voices import Voices
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import RewardSlot, TrajectoryRecord
from claw_r1.schemas.keys import trajectory_key
from claw_r1.schemas.topics import TRAJECTORIES


def row(name: str, returned: float | None = None, group: str = "g", **values: float) -> TrajectoryRecord:
    """values: by source, of name `x`."""
    slots = tuple(
        RewardSlot(source=source, name="x", value=value, revision=0, event_id="") for source, value in values.items()
    )
    return TrajectoryRecord(
        group_id=group,
        trajectory_id=name,
        status="completed",
        ready=True,
        calls=("c",),
        rewards=slots,
        return_total=returned,
    )


def doubts(rows: list[TrajectoryRecord], **asked: Any) -> dict[str, float]:
    """By trajectory, of a queue that nobody has judged."""
    pool = PoolRows(listed=True)
    for each in rows:
        pool.apply(TRAJECTORIES.name, trajectory_key(each.group_id, each.trajectory_id), encode(each))
    view: Any = SimpleNamespace(changes=0, ask=lambda question: question(pool))
    items = queues.Queues(view).get(QueueQuery(**asked)).queue.items
    return {item.trajectory_id: item.doubt for item in items}


def test_scorers_are_compared_by_rank() -> None:
    """Another scale is no disagreement; another order is, and ranks are those among all of the pool, whatever is asked for."""
    agree = [row(str(n), judge=n / 10, model=100 * n - 500) for n in range(5)]
    assert set(doubts(agree).values()) == {0.0}
    apart = doubts([*agree, row("odd", judge=0.0, model=1e6)])
    assert max(apart, key=lambda name: apart[name]) == "odd"
    assert 0.5 < apart["odd"] <= 1
    assert doubts([*agree, row("odd", judge=0.0, model=1e6)], trajectory="odd") == {"odd": apart["odd"]}


def test_what_people_are_divided_on_comes_before_what_scorers_are() -> None:
    """Doubt is the sum of both, each at most 1."""
    rows = [(row("calm"), 0.0), (row("people"), 0.0), (row("scorers"), 0.9)]
    voices = Voices(judges={("g", "people"): {"ann", "bob"}}, spread={("g", "people"): 1.0})
    items, _ = with_feedback(silent(single_items(rows), "doubt", 0), voices)
    assert [item.trajectory_id for item in items] == ["people", "scorers", "calm"]


@given(st.integers(0, 9))
def test_every_member_is_in_two_pairs(members: int) -> None:
    """As many pairs as members, from three on; two make one, one makes none; no pair is asked twice."""
    items = pair_items([row(str(n), float(n)) for n in range(members)])
    pairs = {frozenset({item.trajectory_id, item.other_id}) for item in items}
    assert len(pairs) == len(items) == {0: 0, 1: 0, 2: 1}.get(members, members)
    assert members < 3 or all(sum(str(n) in pair for pair in pairs) == 2 for n in range(members))


def test_a_divided_vote_and_near_returns_are_doubt() -> None:
    """Before any vote the nearest returns lead; one vote each way outweighs that."""
    rows = [row("a", 0.0), row("b", 1.0), row("c", 1.1), row("e", 10.0)]
    first = silent(pair_items(rows), "doubt", 0).items[0]
    assert {first.trajectory_id, first.other_id} in ({"b", "c"}, {"a", "b"}, {"a", "c"})
    two = [row("a", 0.0, "h"), row("b", 9.0, "h")]
    pair, queue = ("h", frozenset({"a", "b"})), silent(pair_items(two), "doubt", 0)
    (divided,), _ = with_feedback(queue, Voices(pair_judges={pair: {"ann": "a", "bob": "b"}}))
    (agreed,), _ = with_feedback(queue, Voices(pair_judges={pair: {"ann": "a", "bob": "a"}}))
    assert (divided.doubt, agreed.doubt) == (1.0, 0.0)
    assert is_open(divided, "cid", 3)
    assert not is_open(divided, "ann", 3)
    assert not is_open(divided, "cid", 2)


@given(st.lists(st.text(), min_size=2, max_size=2, unique=True), st.text())
def test_sides_are_by_lot_and_stay(two: list[str], who: str) -> None:
    """Whoever names the pair in either order sees it alike."""
    assert sides(("g", two[0], two[1]), who) == sides(("g", two[1], two[0]), who)
    assert {*sides(("g", two[0], two[1]), who)} == {*two}


def test_no_side_is_favoured() -> None:
    """Over many pairs the first by id is on the left about half of the time."""
    left = sum(sides((str(n), "a", "b"), "ann")[0] == "a" for n in range(400))
    assert 150 < left < 250


@pytest.mark.parametrize("mode", ["single", "pair"])
@pytest.mark.parametrize("ready", [None, True])
def test_a_listed_pool_is_read_in_pages(monkeypatch: pytest.MonkeyPatch, mode: Any, ready: bool | None) -> None:
    """The queue is that of pages of any size, no question to the pool reads more than a page, and each row is read once."""
    pages: list[int] = []
    pool = PoolRows(listed=True)
    for n in range(9):
        record = row(f"t{n}", n / 9, f"g{n // 3}", judge=n, model=-n)
        pool.apply(TRAJECTORIES.name, trajectory_key(record.group_id, record.trajectory_id), encode(record))

    def ask(question: Any) -> Any:
        answer = question(pool)
        pages.append(len(answer) if isinstance(answer, list) else 0)
        return answer

    view: Any = SimpleNamespace(changes=0, ask=ask)
    query = QueueQuery(mode=mode, ready=ready)
    whole = queues.Queues(view).get(query).queue.items
    assert (len(whole), max(pages), sum(pages)) == (9, 9, 9)
    monkeypatch.setattr(queues, "PAGE", 3)
    pages.clear()
    assert queues.Queues(view).get(query).queue.items == whole
    assert max(pages) == 3


@pytest.mark.parametrize("overlap", [1, 2])
def test_people_share_a_queue_by_lot(overlap: int) -> None:
    """Each item is for as many people as it should be, whoever looks and in whatever order they are named; nobody has all of it."""
    people = ["ann", "bob", "cyd"]
    items = single_items((row(f"t{n}"), 0.0) for n in range(300))
    for item in items:
        named = [who for who in people if is_for(item, who, people, overlap)]
        assert len(named) == overlap
        assert named == [who for who in people if is_for(item, who, people[::-1], overlap)]
    for who in people:
        own = sum(is_for(item, who, people, overlap) for item in items)
        assert 60 * overlap < own < 140 * overlap
    assert not any(is_for(item, "dan", people, overlap) for item in items)
    assert all(is_for(item, "dan", (), overlap) for item in items)


def test_evaluation_is_asked_about_on_demand() -> None:
    """A queue leaves the channel of evaluation out, unless it is asked for it, or for a channel by its name."""
    pool = PoolRows(listed=True)
    for name, channel in (("train", "train"), ("val", "val"), ("probe", "probe")):
        record = replace(row(name), channel=channel)
        pool.apply(TRAJECTORIES.name, trajectory_key("g", name), encode(record))
    view = SimpleNamespace(ask=lambda question: question(pool), changes=0)
    for fields, names in (({}, "probe train"), ({"evaluation": True}, "probe train val"), ({"channel": "val"}, "val")):
        kept = queues.Queues(view).get(QueueQuery(**fields))
        assert " ".join(sorted(item.trajectory_id for item in kept.queue.items)) == names

"""The explorer's answers: lists that stand still, counts per value, neighbours, a search in conversations; each says what it refuses."""

import inspect
import math
import re
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from claw_r1.consumers.pool.reasons import UNTOLD, sentence_of
from claw_r1.datapool.fold import readiness, trainable
from claw_r1.datapool.fold.trainable import OWN_WORDS
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.codec import encode
from claw_r1.schemas.events import TrajectoryRecord
from claw_r1.schemas.keys import trajectory_key
from claw_r1.schemas.topics import TRAJECTORIES
from tests import facts
from tests.consumers.dashboard.stage import DashboardStage, episode
from tests.consumers.runs import observed
from tests.patience import until


@pytest.fixture
def opened() -> Iterator[tuple[DashboardStage, TestClient]]:
    stage = DashboardStage(
        episode("g", "t", "Which animal?", "a cat", 1.0, agent="ann"),
        episode("g", "u", "Which animal?", "a red dog", 0.0, agent="bob"),
        episode("h", "t", "Which plant?", "a fern", 0.5, channel="val"),
    )
    with stage.asked() as client:
        yield stage, client


def get(client: TestClient, path: str, **params: object) -> dict:
    answer = client.get(f"/api/v1/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(answer: dict) -> list[str]:
    return ["/".join(row["ids"]) for row in answer["rows"]]


def test_a_list_stands_still_and_counts_what_is_new(opened: tuple[DashboardStage, TestClient]) -> None:
    """Asked for by its `order`, rows stay where they are while others come; the same question without it has them all."""
    stage, client = opened
    first = get(client, "rows", sort="return", desc=True, columns="return", at="h/t")
    assert (names(first), first["place"], first["new"]) == (["g/t", "h/t", "g/u"], 1, 0)
    stage.tell(*episode("i", "t", "Which stone?", "flint", 2.0))
    stage.wait_read()
    again = get(client, "rows", sort="return", desc=True, columns="return", order=first["order"])
    assert (names(again), again["new"], again["order"]) == (["g/t", "h/t", "g/u"], 1, first["order"])
    other = get(client, "rows", sort="return", columns="return", order=first["order"])
    assert names(other) == ["g/u", "h/t", "g/t", "i/t"]  # another question: an order of its own


def test_counts_leave_out_the_value_that_is_chosen(opened: tuple[DashboardStage, TestClient]) -> None:
    """With a channel chosen, the others are still counted beside it, and everything else within it."""
    answer = get(opened[1], "facets", channel="train")
    assert answer["total"] == 2
    assert answer["facets"]["channel"] == [["train", 2], ["val", 1]]
    assert sorted(answer["facets"]["agent"]) == [["ann", 1], ["bob", 1]]


@pytest.mark.parametrize("kind", ["groups", "trajectories", "steps"])
def test_a_count_beside_the_list_is_what_its_filter_finds(opened: tuple[DashboardStage, TestClient], kind: str) -> None:
    """Run, status, reason, finish, task, time and all others: pressed, each finds as many rows as it said."""
    (stage, client), at_us, task = opened, 1_790_000_000_000_000, '{"q": "what?"}'
    when = facts.envelope(at_us=at_us)
    stage.tell(
        facts.opened("o", task=task, envelope=when),
        facts.started("o", "t", task=task, envelope=when),
        facts.call(
            "o",
            "t",
            "c",
            envelope=when,
            received_us=at_us,
            finish_reason="length",
            sampling=replace(facts.PLAIN, temperature=0.0),
        ),
        facts.started("o", "u", task=task, envelope=when),
    )
    stage.wait_read()
    answer = get(client, "facets", kind=kind)
    fields = {field for field, values in answer["facets"].items() if values}
    assert {"run", "time", "reason", "task"} <= fields
    for field, values in answer["facets"].items():
        for value, rows in values:
            asked = str(value).lower() if isinstance(value, bool) else value
            assert get(client, "rows", kind=kind, **{field: asked})["total"] == rows, (field, value)
    assert all(says.endswith(".") and todo for says, todo in answer["says"].values())


def test_every_word_of_the_fold_is_a_sentence() -> None:
    """A reason that the fold may give has a sentence of its own, with what to do."""
    words = {*OWN_WORDS, *re.findall(r'yield "(\w+)"', "".join(map(inspect.getsource, (readiness, trainable))))}
    assert {word for word in words - {"status"} if sentence_of(word) is UNTOLD} == set()


def test_rows_tell_how_their_replies_end(opened: tuple[DashboardStage, TestClient]) -> None:
    """Of trajectories the last reply, of steps their own; of what is not there, nothing."""
    assert get(opened[1], "endings", key=["g/u", "h/t", "g/none"])["endings"] == {"g/u": "a red dog", "h/t": "a fern"}
    assert get(opened[1], "endings", kind="steps", key="g/t/t-0")["endings"] == {"g/t/t-0": "a cat"}


@pytest.mark.parametrize(
    ("name", "views"),
    [
        ("g", [("group", {"g": "g"})]),
        ("u", [("trajectory", {"g": "g", "t": "u"})]),
        ("t", [("trajectory", {"g": "g", "t": "t"}), ("trajectory", {"g": "h", "t": "t"})]),
        ("h/t", [("trajectory", {"g": "h", "t": "t"})]),
        ("u-0", [("call", {"g": "g", "t": "u", "c": "u-0"})]),
        ("g/t/t-0", [("call", {"g": "g", "t": "t", "c": "t-0"})]),
        (" run ", [("run", {"run": "run"})]),
        ("run/2", [("version", {"lineage": "run/2"})]),
        ("run/99", []),
        ("run#1", [("batch", {"run": "run", "n": 1})]),
        ("run#2", []),
        ("%zz/ä", []),
        ("fern", []),
    ],
)
def test_an_id_of_any_kind_names_its_view(
    opened: tuple[DashboardStage, TestClient], name: str, views: list[tuple[str, dict]]
) -> None:
    """A group, trajectory or call by its id or as lists print it, a run, a version of it."""
    stage, client = opened
    stage.report(observed.started("run"), observed.planned(1, "run"), observed.trained(1, 0.5, "run"))
    until(
        lambda: stage.source.ask_runs(lambda state: "run" in state.runs and state.runs["run"].trained),
        "the run is read",
    )
    assert [(each["kind"], each["values"]) for each in get(client, "named", q=name)["views"]] == views


def test_neighbours_stand_within_filter_and_order(opened: tuple[DashboardStage, TestClient]) -> None:
    answer = get(opened[1], "neighbours", kind="trajectories", sort="return", g="h", t="t")
    assert answer == {"previous": {"g": "g", "t": "u"}, "next": {"g": "g", "t": "t"}, "at": 1, "count": 3}
    within = get(opened[1], "neighbours", kind="trajectories", sort="return", channel="train", g="g", t="u")
    assert (within["previous"], within["next"], within["count"]) == (None, {"g": "g", "t": "t"}, 2)


@pytest.mark.parametrize(("kind", "match"), [("steps", "c"), ("trajectories", "t"), ("groups", "g")])
def test_conversations_are_searched_within_the_other_filters(
    opened: tuple[DashboardStage, TestClient], kind: str, match: str
) -> None:
    """What `claw pool steps --text` finds, of every kind; and how much was looked through."""
    answer = get(opened[1], "conversations", kind=kind, text="RED dog")
    assert [row[match] for row in answer["matches"]] == [{"steps": "u-0", "trajectories": "u", "groups": "g"}[kind]]
    assert (answer["lost"], answer["after"]) == (0, None)
    elsewhere = get(opened[1], "conversations", kind=kind, text="red dog", channel="val")
    assert (elsewhere["matches"], elsewhere["looked"]) == ([], 1)


def test_a_search_goes_on_where_it_stopped(
    opened: tuple[DashboardStage, TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded in time: each answer looks through one row, and all of them through each once."""
    monkeypatch.setattr("claw_r1.consumers.dashboard.routes.explorer.SEARCH_S", -1.0)
    after, matches, looked = None, [], 0
    for _ in range(4):
        answer = get(opened[1], "conversations", text="animal", **({"after": after} if after else {}))
        matches, looked, after = matches + answer["matches"], looked + answer["looked"], answer["after"]
        if after is None:
            break
    assert (looked, after, matches) == (3, None, [{"g": "g", "t": "t"}, {"g": "g", "t": "u"}])


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("rows?sort=height", "no column 'height'"),
        ("rows?columns=height", "no column 'height'"),
        ("rows?heigth=3", "heigth"),
        ("rows?score=much", "SCORER@VERSION"),
        ("rows?at=a%2Fb%2Fc", "no key of trajectories"),
        ("rows?kind=batches", "kind"),
        ("rows?limit=501", "limit"),
        ("neighbours?kind=trajectories&g=g", "g, t"),
        ("conversations", "which text"),
        ("conversations?text=x&after=%C3%A4", "no key of trajectories"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    opened: tuple[DashboardStage, TestClient], path: str, says: str
) -> None:
    answer = opened[1].get(f"/api/v1/{path}")
    assert answer.status_code == 422
    assert says in answer.json()["detail"]


def test_orders_are_forgotten_oldest_first(opened: tuple[DashboardStage, TestClient]) -> None:
    """Many open pages do not fill the memory: an order that is forgotten is made anew."""
    first = get(opened[1], "rows")["order"]
    for number in range(40):
        get(opened[1], "rows", reward_min=-number)
    assert get(opened[1], "rows", order=first)["order"] != first


def test_an_evicted_row_is_still_told(opened: tuple[DashboardStage, TestClient]) -> None:
    stage, client = opened
    stage.tell(facts.evicted("h", "t"))
    stage.wait_read()
    assert get(client, "rows", group="h", columns="status")["rows"][0]["values"]["status"] == "evicted"


def test_a_return_that_is_no_number_empties_no_list() -> None:
    """Streams refuse such rewards, another writer may not: the row is there, its return is null."""
    stage = DashboardStage(episode("g", "t", "Which animal?", "a cat", 1.0))
    row = TrajectoryRecord(
        group_id="h", trajectory_id="odd", status="completed", ready=True, return_total=math.inf, outcome=math.inf
    )
    stage.log.append([Outgoing(topic=TRAJECTORIES, key=trajectory_key("h", "odd"), value=encode(row))])
    with stage.asked() as client:
        rows = {row["ids"][1]: row["values"]["return"] for row in get(client, "rows", columns="return")["rows"]}
    assert rows == {"t": 1.0, "odd": None}

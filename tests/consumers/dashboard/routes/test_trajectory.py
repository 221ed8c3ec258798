"""What the trajectory view is told: the tree, what a call adds, rewards at their call, why."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import orjson
import pytest
from msgspec.structs import replace

from claw_r1.consumers.dashboard.call_tree import outline
from claw_r1.consumers.pool.inspection import inspected, steps_of, trajectory_of, turns
from claw_r1.datapool.view.why import why
from claw_r1.schemas.events import Edge, StepRecord
from tests import facts
from tests.consumers.dashboard.conversations import Speaker, body_edge, told
from tests.consumers.dashboard.stage import DashboardStage


@contextmanager
def asking(stage: DashboardStage) -> Iterator[Any]:
    """`ask(path, **query)` of trajectory t in group g."""
    with stage.served() as url, httpx.Client(base_url=f"{url}/api/v1/", timeout=30) as http:
        http.get("session")

        def ask(path: str = "", status: int = 200, **query: Any) -> Any:
            answer = http.get(f"trajectory{path}", params={"g": "g", "t": "t", **query})
            assert answer.status_code == status, answer.text
            return answer.json()

        yield ask


def texts(call: dict[str, Any]) -> list[str]:
    """What its messages say."""
    return [part["text"]["text"] for message in call["messages"] for part in message["parts"]]


def test_each_message_is_told_once_as_inspect_tells_it() -> None:
    """What calls add, one after the other, is the conversation of `claw inspect`; each says how much it repeats."""
    stage = DashboardStage(told(70))
    with asking(stage) as ask:
        windows = [ask("/messages", **{"from": start, "limit": 50})["calls"] for start in (0, 50)]
        pool, source = stage.source.pool, stage.source
        row = pool.ask(lambda rows: trajectory_of(rows, "t", "g"))
        assert row is not None
        whole = inspected(row, pool.ask(lambda rows: steps_of(rows, row)), source.facts)
    calls = [call for window in windows for call in window]
    spoken = [text for call in calls for text in texts(call)]
    asides = [f'search({{"q":"step {n}"}})' for n in range(69)]
    assert spoken == [turn["content"].split("\n")[0] for turn in turns(whole)]
    assert sum(any(aside in turn["content"] for aside in asides) for turn in turns(whole)) == 69
    assert [call["base"]["repeated"] for call in calls[1:]] == [2 * n + 1 for n in range(1, 70)]
    assert {call["base"]["left"] for call in calls[1:]} == {0}  # the 65th is written in full, and goes on all the same
    result = calls[3]["messages"][0]
    assert (result["role"], result["answers"]["name"]) == ("tool", "search")


def test_a_branch_stands_between_its_call_and_what_goes_on_with_it() -> None:
    """The tree's order; a call that keeps less of its base is a branch, whose messages say what it leaves out."""
    first, second, third = told(3)
    speaker = Speaker()
    speaker.call(
        [{"role": "system", "content": "You are careful."}, {"role": "user", "content": "other"}], {"content": "?"}
    )
    aside = replace(speaker.calls["c00000"], call_id="aside", prompt=facts.edge([9], base="c00000", keep=2),
        base_digest=facts.written_against(first, 2), timings=third.timings)  # fmt: skip
    with asking(DashboardStage([first, second, aside, third])) as ask:
        head = ask(c="aside")
        places = {call["call_id"]: call for call in head["calls"]}
        call = ask("/messages", **{"from": 1, "limit": 1})["calls"][0]
    assert list(places) == ["c00000", "aside", "c00001", "c00002"]
    assert [(call["depth"], call["goes_on"], call["base"]) for call in places.values()] == [
        (0, False, None), (1, False, 0), (0, True, 0), (0, True, 2),
    ]  # fmt: skip
    assert head["at"] == 1
    assert call["base"] == {"call_id": "c00000", "at": 0, "repeated": 1, "left": 2}
    assert texts(call) == ["other", "?"]
    assert places["c00001"]["between_us"] == 6_000_000
    assert [places["c00001"][name] for name in ("queue_us", "first_us", "generation_us")] == [
        500_000,
        500_000,
        3_000_000,
    ]


def test_bases_in_a_circle_are_drawn_all_the_same() -> None:
    """Every step once, whatever its edges say."""
    one, two = (
        StepRecord(group_id="g", trajectory_id="t", call_id=name, base_call_id=base) for name, base in ("ab", "ba")
    )
    assert [step.call_id for step in outline([one, two]).steps] == ["a", "b"]


def test_rewards_stand_at_the_call_they_judge_and_why_is_the_pools() -> None:
    """By call, by index and of the trajectory; the explanation is that of `claw pool why`."""
    stage = DashboardStage(
        [*told(3), facts.reward(call_id="c00001", value=0.5, source="judge", name="style"),
         facts.reward(step_index=2, value=-1.0, source="human:bob"), facts.completed(calls=3, reward=1.0)]
    )  # fmt: skip
    with asking(stage) as ask:
        head = ask()
        (expected,) = stage.source.pool.ask(lambda rows: why(rows, stage.source.ask_runs(lambda s: s.index), None, "t"))
    slots = {(slot["source"], slot["name"]): (slot["at"], slot["value"]) for slot in head["rewards"]}
    assert slots[("judge", "style")] == (1, 0.5)
    assert slots[("human:bob", "outcome")] == (2, -1.0)
    assert slots[("agent", "completion")] == (None, 1.0)
    assert (head["why"]["state"], head["why"]["lines"]) == (expected.state, list(expected.lines))
    assert [(word["who"], word["value"]) for word in head["words"]] == []  # a reward by index is no word of a page


def test_texts_are_searched_as_people_write_them() -> None:
    """In any case, with letters that the body writes as escapes, and only where they were added."""
    with asking(DashboardStage(told(4, text='Köln "am" Rhein'))) as ask:
        assert [hit["at"] for hit in ask("/find", q='köln "AM" rhein 2')["hits"]] == [2, 3]  # said, and its result
        assert ask("/find", q="Bonn") == {"hits": [], "total": 0}


def test_long_texts_are_cut_and_to_be_had_whole() -> None:
    """A window stays small; one message is asked for by its number, with its images."""
    url = "data:image/png;base64,iVBORw0KGgo="
    speaker = Speaker()
    parts = [{"type": "text", "text": "y" * 20_000}, {"type": "image_url", "image_url": {"url": url}}]
    speaker.call([{"role": "user", "content": parts}] * 100, {"content": "z" * 20_000})
    with asking(DashboardStage(speaker.calls.values())) as ask:
        (call,) = ask("/messages")["calls"]
        whole, gone = ask("/message", c="c00000", n=3), ask("/message", 404, c="c00000", n=500)
    assert (len(call["messages"]), call["left_out"]) == (60, 41)
    assert [part.get("data") for part in call["messages"][0]["parts"]] == [None, None]
    assert call["messages"][-1]["is_reply"]
    assert len(whole["parts"][0]["text"]["text"]) == 20_000
    assert whole["parts"][1] == {"image": "image/png", "bytes": len(url) * 3 // 4, "data": url}
    assert "no message 500" in gone["detail"]


@pytest.mark.parametrize(
    "url", ["data:image/svg+xml;base64,PHN2Zz4=", "https://evil.example/x.png", "data:image/png,x"]
)
def test_nothing_but_pictures_inside_a_message_is_an_image(url: str) -> None:
    """An address elsewhere, and a document that could act, are text."""
    speaker = Speaker()
    speaker.call([{"role": "user", "content": [{"type": "input_image", "image_url": url}]}], {"content": "?"})
    with asking(DashboardStage(speaker.calls.values())) as ask:
        (part,) = ask("/message", c="c00000", n=0)["parts"]
    assert part["text"]["text"] == f"[an image that is not loaded: {url}]"


def test_messages_nested_deeper_than_can_be_compared_are_told() -> None:
    """A call repeats one: no fault of the program."""
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    body = orjson.dumps({"messages": [{"role": "user", "content": deep}]}).replace(b"[]", b"[" * 815 + b"]" * 815)
    one = facts.call(call_id="a", request=body_edge(body))
    two = facts.call(call_id="b", request=body_edge(body), received_us=1, prompt=facts.edge([1], base="a", keep=1))
    with asking(DashboardStage([one, two])) as ask:
        calls = ask("/messages")["calls"]
    assert [len(call["messages"]) for call in calls] == [1, 0]


def test_a_lost_body_and_a_call_that_never_came_say_so() -> None:
    """The rest of the trajectory is there."""
    broken = facts.call(
        call_id="b", request=Edge(base_call_id="gone", keep=5, suffix=b"x", full_length=6, full_digest="")
    )
    with asking(DashboardStage([*told(1), broken, facts.curated(call_id="never", note="?")])) as ask:
        calls = {call["call_id"]: call for call in ask("/messages")["calls"]}
        missing = ask("", 404, t="nobody")
    assert calls["b"]["problem"] == "its request cannot be put together"
    assert calls["never"]["problem"] == "no call of it was captured yet"
    assert texts(calls["c00000"])[-1] == "step 0"
    assert "no trajectory nobody" in missing["detail"]

"""The group board's answers: members in order, two of them side by side from where they part."""

from collections.abc import Iterator, Sequence

import pytest
from starlette.testclient import TestClient

from claw_r1.consumers.dashboard.routes.group import CALLS_MAX
from claw_r1.schemas.arrays import pack_ids
from claw_r1.schemas.events import Event
from tests import facts
from tests.consumers.dashboard.stage import DashboardStage, episode


def member(name: str, reply: str, reward: float | None, ids: Sequence[int]) -> list[Event]:
    return episode("g", name, "Which animal?", reply, reward, ids=tuple(ids))


@pytest.fixture
def opened() -> Iterator[tuple[DashboardStage, TestClient]]:
    stage = DashboardStage(
        [facts.opened("g", expected_size=5, task='"animals"', deadline_us=9)],
        member("low", "It is a small dog.", -1.0, [5, 6, 7, 8]),
        member("high", "It is a small cat.", 1.0, [5, 6, 9, 8]),
        member("none", "It is a small cat.", None, [5, 6, 9, 8]),
    )
    with stage.asked() as client:
        yield stage, client


def get(client: TestClient, path: str) -> dict:
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_members_stand_by_return_and_say_what_is_missing(opened: tuple[DashboardStage, TestClient]) -> None:
    answer = get(opened[1], "group?g=g")
    assert [(each["trajectory_id"], each["return"]) for each in answer["members"]] == [
        ("high", 1.0),
        ("low", -1.0),
        ("none", None),
    ]
    assert (answer["expected_size"], answer["count"], answer["left_out"], answer["ready"]) == (5, 3, 0, False)
    assert (answer["reward_mean"], answer["zero_variance"], answer["deadline_us"]) == (None, False, 9)
    assert answer["why"]["state"] == "not_ready"
    assert "of 5 members ready" in answer["why"]["lines"][0]


def test_a_pair_is_told_from_where_it_parts(opened: tuple[DashboardStage, TestClient]) -> None:
    """What both share is counted; behind it the words that differ are marked."""
    answer = get(opened[1], "group/pair?g=g&a=high&b=low")
    assert (answer["shared"], [turn["role"] for turn in answer["before"]]) == (1, ["user"])
    one, other = (side["turns"][0]["parts"] for side in answer["sides"])
    assert ([text for text, differs in one if differs], [text for text, differs in other if differs]) == (
        ["cat"],
        ["dog"],
    )
    assert get(opened[1], "group/pair?g=g&a=high&b=none")["shared"] == 2


def test_tokens_part_where_they_do(opened: tuple[DashboardStage, TestClient]) -> None:
    """Prompt of three, two equal ids of the reply; the third differs and the fourth does not."""
    answer = get(opened[1], "group/tokens?g=g&a=high&b=low")
    assert (answer["k"], answer["parts_at"], answer["from"]) == (0, 5, 0)
    one, other = answer["sides"]
    assert [token[0] for token in one["tokens"] if token[2]] == [9]
    assert [token[0] for token in other["tokens"] if token[2]] == [7]
    assert [token[1] for token in one["tokens"]] == [None, None, None, -0.5, -0.5, -0.5, -0.5]
    assert (one["call_id"], one["prompt"], one["length"]) == ("high-0", 3, 7)


def test_tokens_of_a_later_call_are_read_over_its_base() -> None:
    """The first call is the same, so the second one, whose prompt keeps it, is where they part."""
    stage = DashboardStage()
    for name, last in (("a", 4), ("b", 5)):
        first = facts.call("g", name, f"{name}0", ids=(1, 2))
        whole = facts.edge([1, 2, 3, 1, 2, 50])
        prompt = facts.edge([50], base=f"{name}0", keep=5)
        second = facts.call(
            "g", name, f"{name}1", ids=(last,), received_us=9,
            prompt=type(prompt)(base_call_id=f"{name}0", keep=5, suffix=pack_ids([50]), full_length=6, full_digest=whole.full_digest),
        )  # fmt: skip
        stage.tell(first, second)
    with stage.asked() as client:
        answer = get(client, "group/tokens?g=g&a=a&b=b")
        assert (answer["k"], answer["parts_at"], answer["calls"]) == (1, 6, [2, 2])
        assert [token[0] for token in answer["sides"][0]["tokens"]] == [1, 2, 3, 1, 2, 50, 4]
        beyond = get(client, "group/tokens?g=g&a=a&b=b&k=2")
        assert beyond["sides"] == [None, None]


def test_any_call_can_be_named_however_few_are_looked_through() -> None:
    """The search for the first that differs ends early; the page goes on from there to the last one, call by call."""
    calls = CALLS_MAX + 2
    stage = DashboardStage(
        facts.call("g", name, f"{name}{n:02}", ids=(int(name == "a" and n == calls - 1),), received_us=n)
        for name in ("a", "b")
        for n in range(calls)
    )
    with stage.asked() as client:
        answer = get(client, "group/tokens?g=g&a=a&b=b")
        assert (answer["k"], answer["calls"]) == (CALLS_MAX - 1, [calls] * 2)
        last = get(client, f"group/tokens?g=g&a=a&b=b&k={calls - 1}")
        assert [[token[0] for token in side["tokens"] if token[2]] for side in last["sides"]] == [[1], [0]]


def test_a_member_without_tokens_is_none() -> None:
    stage = DashboardStage(member("high", "yes", 1.0, [5]), [facts.started("g", "idle")])
    with stage.asked() as client:
        assert get(client, "group/tokens?g=g&a=high&b=idle")["sides"][1] is None
        assert get(client, "group/pair?g=g&a=high&b=idle")["sides"][1]["turns"] == []


def test_cut_tokens_break_no_comparison() -> None:
    """A side with cut ids is none; log-probabilities that are not one for each id are unknown."""
    stage = DashboardStage([facts.opened("g")])
    stage.tell(
        facts.call("g", "ids", "i", response_ids=b"\7\0\0\0\0"), facts.call("g", "odds", "o", response_logprobs=b"\0")
    )
    with stage.asked() as client:
        one, other = get(client, "group/tokens?g=g&a=ids&b=odds")["sides"]
    assert one is None
    assert [token[:2] for token in other["tokens"][3:]] == [[7, None], [8, None], [9, None]]


@pytest.mark.parametrize("path", ["group?g=nobody", "group/pair?g=g&a=high&b=nobody", "group/tokens?g=nobody&a=x&b=y"])
def test_an_id_of_nothing_is_said(opened: tuple[DashboardStage, TestClient], path: str) -> None:
    answer = opened[1].get(f"/api/v1/{path}")
    assert answer.status_code == 404
    assert "the pool has no" in answer.json()["detail"]

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from claw_r1.agentflow.bodies import TrajectoryId
from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode, EpisodeResult
from claw_r1.agentflow.errors import FlowNotFound, GatewayUnavailable, RequestRefused
from claw_r1.agentflow.flow import AgentFlow, load_flow, play
from claw_r1.agentflow.settings import AgentFlowSettings
from claw_r1.schemas.envelopes import now_us
from tests.agentflow.fake_gateway import FakeGateway

HELLO = [{"role": "user", "content": "hi"}]
QUICK = AgentFlowSettings(retry_budget_s=0.05, retry_pause_s=0.01)


class Scripted(AgentFlow):
    """A flow given as a function."""

    def __init__(self, script: Callable[[Episode], Coroutine[None, None, None]]) -> None:
        self._script = script

    async def run(self, episode: Episode) -> None:
        await self._script(episode)


async def played(fake: FakeGateway, script: Callable[[Episode], Coroutine[None, None, None]]) -> EpisodeResult:
    async with GatewayClient(fake.url, settings=QUICK) as client:
        episode = Episode(client, TrajectoryId("t", "g"), task={}, seed=0)
        return await play(Scripted(script), episode, QUICK)


async def test_completion_counts_calls_and_rewards() -> None:
    """The completion carries the outcome and how many calls and rewards must be there before training."""

    async def script(episode: Episode) -> None:
        for _ in range(3):
            reply = await episode.chat(HELLO)
            await episode.reward(0.1, call_id=reply.call_id)
        episode.outcome = 0.5

    async with FakeGateway() as fake:
        result = await played(fake, script)
    assert fake.bodies("complete_trajectory") == [
        {"reward": 0.5, "status": "completed", "calls": 3, "rewards": 3, "ids": ("t", "g")}
    ]
    assert result.reward == pytest.approx(0.8)
    assert (result.calls, result.policy_versions, result.reported) == (3, ("run/3",), True)


async def test_a_reward_assigned_again_replaces_the_first() -> None:
    """The second value of a slot has a higher revision, and the slot counts once. It is the time: an agent that knows its base URL
    may say any up to that, and the runner's next word outranks it."""
    begin_us = now_us()

    async def script(episode: Episode) -> None:
        await episode.reward(0.3)
        await episode.reward(0.9)

    async with FakeGateway() as fake:
        result = await played(fake, script)
    first, second = fake.bodies("rewards")
    assert (first["value"], second["value"]) == (0.3, 0.9)
    assert begin_us <= first["revision"] < second["revision"]
    assert fake.bodies("complete_trajectory")[0]["rewards"] == 1
    assert result.reward == 0.9


async def test_rewards_ride_with_the_next_call_and_the_completion() -> None:
    """An episode of three rewarded calls is four requests; in the log each reward comes before what it rode with."""

    async def script(episode: Episode) -> None:
        for value in (0.1, 0.2, 0.3):
            reply = await episode.chat(HELLO)
            await episode.reward(value, call_id=reply.call_id, name="ü")

    async with FakeGateway() as fake:
        await played(fake, script)
    assert [name for name, _, _ in fake.requests] == [
        *["chat/completions"] * 1,
        *["rewards", "chat/completions"] * 2,
        *["rewards", "complete_trajectory"],
    ]
    assert [(body["value"], body["name"]) for body in fake.bodies("rewards")] == [(0.1, "ü"), (0.2, "ü"), (0.3, "ü")]
    assert len(fake.keys) == 4


async def test_a_reward_is_stored_at_once_where_its_flow_asks_for_it() -> None:
    """After a flush nothing waits, and what was stored does not ride."""

    async def script(episode: Episode) -> None:
        await episode.reward(0.5)
        assert fake.bodies("rewards") == []
        await episode.flush()
        assert len(fake.bodies("rewards")) == 1

    async with FakeGateway() as fake:
        await played(fake, script)
    assert [name for name, _, _ in fake.requests] == ["rewards", "complete_trajectory"]


@pytest.mark.parametrize(("rewards", "name"), [(65, "r"), (12, "ä" * 100)])
async def test_more_rewards_than_a_header_holds_are_requests_of_their_own(rewards: int, name: str) -> None:
    """Nothing that an agent rewards makes a request that a server would refuse for its length."""

    async def script(episode: Episode) -> None:
        for number in range(rewards):
            await episode.reward(1.0, name=f"{name}{number}")

    async with FakeGateway() as fake:
        await played(fake, script)
    assert len(fake.bodies("rewards")) == fake.bodies("complete_trajectory")[0]["rewards"] == rewards
    assert max(len(headers.get("x-claw-rewards", "")) for _, _, headers in fake.requests) <= 4096


@pytest.mark.parametrize("calls_after", [0, 1])
async def test_a_refused_reward_fails_its_episode_and_no_other_is_lost(calls_after: int) -> None:
    """The trajectory is completed as failed, with the rewards that were stored; the refusal is the episode's failure."""

    async def script(episode: Episode) -> None:
        await episode.reward(0.1, name="a")
        await episode.reward(0.2, name="b")
        await episode.reward(0.3, name="c")
        for _ in range(calls_after):
            await episode.chat(HELLO)
        episode.outcome = 1.0

    async with FakeGateway(refused_values=[0.2]) as fake:
        result = await played(fake, script)
    assert (result.status, result.reported) == ("failed", True)
    assert "not this one" in (result.failure or "")
    assert sorted(body["value"] for body in fake.bodies("rewards")) == [0.1, 0.3]
    assert fake.bodies("complete_trajectory") == [{"status": "failed", "calls": 0, "rewards": 2, "ids": ("t", "g")}]


async def test_an_episode_that_is_stopped_with_a_refused_reward_is_ended_all_the_same() -> None:
    """Its trajectory would hold the run's room until its deadline."""
    called = asyncio.Event()

    async def script(episode: Episode) -> None:
        await episode.reward(0.2)
        called.set()
        await asyncio.Event().wait()

    async with FakeGateway(refused_values=[0.2]) as fake:
        playing = asyncio.create_task(played(fake, script))
        await called.wait()
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
    assert fake.bodies("complete_trajectory") == [{"status": "failed", "calls": 0, "ids": ("t", "g")}]


async def test_a_flow_that_catches_the_refusal_of_a_reward_is_a_failed_one() -> None:
    """What it earned is not what it was given."""

    async def script(episode: Episode) -> None:
        await episode.reward(0.2)
        with contextlib.suppress(RequestRefused):
            await episode.chat(HELLO)
        episode.outcome = 1.0

    async with FakeGateway(refused_values=[0.2]) as fake:
        result = await played(fake, script)
    assert (result.status, result.reported) == ("failed", True)
    assert fake.bodies("complete_trajectory")[0]["status"] == "failed"


async def test_a_call_that_is_refused_for_itself_leaves_its_rewards_waiting() -> None:
    """They ride with the next request: nothing is stored twice for a prompt that is too long."""

    async def script(episode: Episode) -> None:
        await episode.reward(0.5)
        fake.outages.append("400")
        with contextlib.suppress(RequestRefused):
            await episode.chat(HELLO)

    async with FakeGateway() as fake:
        result = await played(fake, script)
    assert result.status == "completed"
    assert [name for name, _, _ in fake.requests] == ["rewards", "chat/completions", "rewards", "complete_trajectory"]


async def test_rewards_that_rode_with_an_unanswered_call_ride_again() -> None:
    """Whether the gateway has them is not known; the same revision makes the second no other word than the first."""

    async def script(episode: Episode) -> None:
        await episode.reward(0.1)
        with pytest.raises(GatewayUnavailable):
            await episode.chat(HELLO)
        fake.outages.clear()

    async with FakeGateway(outages=["503"] * 1000) as fake:
        result = await played(fake, script)
    assert (result.status, result.reported) == ("completed", True)
    first, second = fake.bodies("rewards")
    assert first == second


async def test_an_exception_fails_the_episode_only() -> None:
    """A flow that raises is reported as failed, without a reward, and nothing is raised."""

    async def script(episode: Episode) -> None:
        await episode.chat(HELLO)
        episode.outcome = 1.0
        raise ZeroDivisionError("the author's mistake")

    async with FakeGateway() as fake:
        result = await played(fake, script)
    assert result.status == "failed"
    assert fake.bodies("complete_trajectory") == [{"status": "failed", "calls": 1, "ids": ("t", "g")}]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "much"])
async def test_a_reward_that_is_no_number_fails_the_episode(value: float) -> None:
    """A return that cannot be averaged never reaches the gateway."""

    async def script(episode: Episode) -> None:
        episode.outcome = value

    async with FakeGateway() as fake:
        result = await played(fake, script)
    assert (result.status, result.reward) == ("failed", None)
    assert "reward" not in fake.bodies("complete_trajectory")[0]


@pytest.mark.parametrize("name", [{"name": uuid4()}, {"call_id": b"c"}, {"name": "\ud83d"}])
async def test_a_reward_that_cannot_be_sent_fails_the_episode_and_is_not_sent(name: dict[str, Any]) -> None:
    """The completion takes along what waits: one that is no JSON would end the runner, and every other episode with it."""

    async def script(episode: Episode) -> None:
        await episode.reward(0.1)
        await episode.reward(0.5, **name)

    async with FakeGateway() as fake:
        result = await played(fake, script)
    assert (result.status, result.reported, result.reward) == ("failed", True, 0.1)
    assert [body["value"] for body in fake.bodies("rewards")] == [0.1]


async def test_a_cancelled_episode_says_farewell() -> None:
    """A cancelled episode tells the gateway that it failed, then ends as cancelled."""
    called = asyncio.Event()

    async def script(episode: Episode) -> None:
        called.set()
        await asyncio.Event().wait()

    async with FakeGateway() as fake:
        playing = asyncio.create_task(played(fake, script))
        await called.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
    assert fake.bodies("complete_trajectory")[0]["status"] == "failed"


async def test_a_completion_that_cannot_be_told_is_counted_not_raised() -> None:
    """When the gateway is gone at the end, the result says that it was not reported."""

    async def script(episode: Episode) -> None:
        await episode.chat(HELLO)

    async with FakeGateway(outages=["none"] + ["503"] * 99) as fake:
        result = await played(fake, script)
    assert (result.status, result.reported) == ("completed", False)


FLOW = """
from __future__ import annotations
from dataclasses import dataclass
from claw_r1.agentflow.flow import AgentFlow
from beside import ANSWER

@dataclass
class State:
    turns: int

class Mine(AgentFlow):
    answer = ANSWER
    async def run(self, episode): ...

class Needy(Mine):
    def __init__(self, needs): ...
"""


@pytest.mark.parametrize(
    "name",
    [
        "nowhere",
        "no.such.module:Flow",
        "claw_r1.agentflow.flow:Nothing",
        "claw_r1.agentflow.flow:play",
        "claw_r1.agentflow.flow:AgentFlow",
        "no/such/file.py:Flow",
        "flows.py:Nothing",
        "flows.py:Needy",
        "broken.py:Flow",
        "raising.py:Flow",
    ],
)
def test_a_name_that_is_no_flow_is_told(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with a flow's name, the error is FlowNotFound, one line that repeats the name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # what a test adds to the path goes with it
    for file, text in {"flows": FLOW, "beside": "ANSWER = 1", "broken": "class", "raising": "1 / 0"}.items():
        (tmp_path / f"{file}.py").write_text(text)
    with pytest.raises(FlowNotFound, match=name.partition(":")[0]) as refused:
        load_flow(name)
    assert "\n" not in str(refused.value)


def test_a_flow_is_found_in_a_file_and_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may lie anywhere, and import what lies beside it; what is installed says its flows in `claw.flows`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.py").write_text(FLOW.replace("beside", "companion"))
    (tmp_path / "companion.py").write_text("ANSWER = 42")
    assert load_flow(f"{tmp_path}/mine.py:Mine").answer == 42  # type: ignore[attr-defined]  # an attribute that only this kind has
    installed = tmp_path / "mine-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: mine\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[claw.flows]\nmine = mine:Mine\n")
    assert type(load_flow("mine")).__name__ == "Mine"


async def test_what_a_flow_cancels_itself_is_its_failure() -> None:
    """Nobody stopped the runner: the episode is failed, and `play` returns."""

    async def script(episode: Episode) -> None:
        raise asyncio.CancelledError

    async with FakeGateway() as fake:
        assert (await played(fake, script)).status == "failed"


def test_what_lies_beside_a_flow_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder comes behind everything that is installed."""
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "alone.py").write_text(FLOW.replace("from beside import ANSWER", "ANSWER = 1"))
    load_flow(f"{tmp_path}/alone.py:Mine")
    assert sys.path[-1] == str(tmp_path)

from typing import Any

import pytest

from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.runner import Runner
from claw_r1.agentflow.settings import RunPlan
from examples.gymnasium.flow import GymnasiumFlow
from tests.agentflow.fake_gateway import FakeGateway


class Corridor:
    """A class of Gymnasium's shape that knows nothing of it: walk right to the goal, -0.1 a step, numpy-like rewards."""

    def __init__(self, closed: list[int]) -> None:
        self._closed, self._at = closed, 0

    def reset(self, *, seed: int) -> tuple[int, dict[str, Any]]:
        self._at, self._goal = 0, 2 + seed % 2
        return self._at, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self._at += action
        if self._at < 0:
            raise RuntimeError("fell out")
        won = self._at == self._goal
        return self._at, 1.0 if won else -0.1, won, self._at > 5, {}

    def close(self) -> None:
        self._closed.append(self._at)


class Walk(GymnasiumFlow):
    TURNS_MAX = 4

    def __init__(self) -> None:
        self.closed: list[int] = []

    def make(self) -> Corridor:
        return Corridor(self.closed)

    def show(self, observation: int) -> str:
        return f"tile {observation}"

    def action(self, text: str) -> int:
        return int(text)


async def walked(*replies: str) -> tuple[FakeGateway, Walk]:
    flow = Walk()
    fake = FakeGateway(lambda messages: replies[len(messages) // 2])
    async with fake, GatewayClient(fake.url) as client:
        await Runner(flow, client, RunPlan(group_size=2, concurrency=2, groups_max=1, seed=3)).run()
    return fake, flow


async def test_members_of_a_group_play_one_seed_and_earn_the_sum() -> None:
    """Each step's reward goes to its call, the last one's is the outcome; every environment is closed."""
    fake, flow = await walked("1", "1", "1", "1")
    goals = {body["task"]["seed"] for body in fake.bodies("groups")}
    assert len(goals) == 1
    steps = 2 + goals.pop() % 2
    assert [body["reward"] for body in fake.bodies("complete_trajectory")] == [1.0, 1.0]
    assert [body["value"] for body in fake.bodies("rewards")] == [-0.1] * 2 * (steps - 1)
    assert flow.closed == [steps, steps]
    assert fake.bodies("chat/completions")[-1]["messages"][-1]["content"] == f"tile {steps - 1}"


async def test_a_reply_that_is_no_action_costs_a_turn() -> None:
    """The model is told, the environment does not move, and turns are bounded."""
    fake, flow = await walked("right", "1", "0", "0")
    assert "no action" in fake.bodies("chat/completions")[-1]["messages"][2]["content"]
    assert [body["calls"] for body in fake.bodies("complete_trajectory")] == [4, 4]
    assert flow.closed == [1, 1]


async def test_an_environment_that_raises_fails_its_episode_and_is_closed() -> None:
    """Its failure is the episode's, nobody else's."""
    fake, flow = await walked("-1")
    assert [body["status"] for body in fake.bodies("complete_trajectory")] == ["failed", "failed"]
    assert flow.closed == [-1, -1]


def test_an_adapter_without_its_three_methods_is_none() -> None:
    """What is missing is named when it is made, before anything is played."""
    with pytest.raises(TypeError, match="action"):
        type("Half", (GymnasiumFlow,), {"make": Walk.make, "show": Walk.show})()

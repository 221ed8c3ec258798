from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.evaluate import evaluate
from claw_r1.agentflow.runner import Runner
from claw_r1.agentflow.settings import EvaluationPlan, RunPlan
from claw_r1.claw.demo.verbs.environment import Task, judge, right_call
from claw_r1.claw.demo.verbs.flow import VerbsFlow
from tests.agentflow.fake_gateway import FakeGateway

SEEDS = st.integers(0, 2**63 - 1)


def right(messages: Sequence[Mapping[str, Any]]) -> str:
    """A model that has learned the task."""
    return right_call(messages[-1]["content"])


@given(SEEDS)
def test_a_task_is_a_function_of_its_seed(seed: int) -> None:
    """The same seed gives the same two or three observations: a request, at most one pointer, a value."""
    task = Task.from_seed(seed)
    assert task == Task.from_seed(seed)
    assert 2 <= len(task.observations) <= 3
    assert task.observations[0].startswith("find ")
    assert [text[1] for text in task.observations[1:]] in (["="], [">", "="])


def test_tasks_do_not_change_between_versions() -> None:
    """Seeds name the same tasks for ever, on every Python: recorded runs stay comparable."""
    assert Task.from_seed(0).observations == ("find g", "g>a", "a=5")
    assert Task.from_seed(3).observations == ("find c", "c=6")


@given(SEEDS)
def test_faultless_play_earns_one(seed: int) -> None:
    """Rewards of an episode without a fault sum to 1, half of it for the last call, and only that one ends it."""
    task = Task.from_seed(seed)
    turns = [judge(task, index, right_call(text)) for index, text in enumerate(task.observations)]
    assert sum(turn.reward for turn in turns) == pytest.approx(1.0)
    assert turns[-1].reward == 0.5
    assert [turn.observation for turn in turns] == [*task.observations[1:], None]


@given(SEEDS, st.integers(0, 1), st.text(max_size=6))
def test_any_other_answer_ends_the_episode_with_nothing(seed: int, index: int, text: str) -> None:
    """Only the exact text counts; a wrong verb, a space too many, an empty answer do not."""
    task = Task.from_seed(seed)
    if text == right_call(task.observations[index]):
        text += " "
    turn = judge(task, index, text)
    assert (turn.reward, turn.observation) == (0.0, None)


async def test_the_flow_of_a_perfect_model_earns_one() -> None:
    """Played through a gateway by a model that knows the task, every evaluation episode returns 1."""
    async with FakeGateway(right) as fake, GatewayClient(fake.url) as client:
        result = await evaluate(VerbsFlow(), client, EvaluationPlan(episodes=16))
    assert result.reward_mean == pytest.approx(1.0)
    assert {episode.calls for episode in result.episodes} == {2, 3}


async def test_the_flow_assigns_what_the_environment_gives() -> None:
    """Rewards sent per call plus the outcome are the episode's return, and the completion counts both."""
    fake = FakeGateway(lambda messages: right(messages) if len(messages) < 3 else "say z")
    async with fake, GatewayClient(fake.url) as client:
        await Runner(VerbsFlow(), client, RunPlan(group_size=2, concurrency=2, groups_max=8)).run()
    steps = {body["ids"]: body["value"] for body in fake.bodies("rewards")}
    assert set(steps.values()) == {0.5, 0.25}
    assert all(body["call_id"] for body in fake.bodies("rewards"))
    for completion in fake.bodies("complete_trajectory"):
        assert completion["reward"] == 0.0
        assert (completion["calls"], completion["rewards"]) == (2, 1)

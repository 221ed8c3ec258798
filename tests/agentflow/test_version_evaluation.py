"""Evaluation beside training: when it is due, what is played, and how its groups can be told."""

import asyncio
from collections import Counter

import pytest

from agentflow.client import GatewayClient
from agentflow.episode import Episode
from agentflow.errors import InvalidPlan
from agentflow.flow import AgentFlow
from agentflow.runner import Runner
from agentflow.settings import AgentFlowSettings, RunPlan
from agentflow.version_evaluation import VersionEvaluation
from schemas.evaluation import EvaluatedTask
from tests.agentflow.fake_gateway import FakeGateway

QUICK = AgentFlowSettings(retry_budget_s=0.5, retry_pause_s=0.01, drain_timeout_s=0.2, stats_interval_s=0.02)


class Ask(AgentFlow):
    """Asks once; how it samples is its own."""

    async def run(self, episode: Episode) -> None:
        await episode.chat([{"role": "user", "content": str(episode.task["seed"])}], temperature=0.7)
        episode.outcome = 1.0


async def until(holds):
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  # the fake gateway signals nothing
            await asyncio.sleep(0.01)


def evaluated(fake: FakeGateway) -> list[EvaluatedTask]:
    parts = (EvaluatedTask.of(body.get("tags") or ()) for body in fake.bodies("groups") if body["channel"] == "val")
    return [part for part in parts if part is not None]


async def test_every_k_versions_the_same_tasks_are_played_greedily_and_sampled() -> None:
    """At 0, and at 5 because 4 was never seen; each task once at temperature 0 and three times as the flow samples."""
    plan = RunPlan(run_id="run", group_size=2, concurrency=4, eval_every=4, eval_tasks=2, eval_samples=3)
    async with (
        FakeGateway(policy_version="run/0") as fake,
        GatewayClient(fake.url, channel="train", settings=QUICK) as client,
        GatewayClient(fake.url, channel="val", settings=QUICK) as val,
    ):
        runner = Runner(Ask(), client, plan, evaluation_client=val)
        running = asyncio.create_task(runner.run())

        def over(version: int) -> int:
            groups = {
                b["group_id"] for b in fake.bodies("groups") if f"evaluation.version={version}" in b.get("tags", ())
            }
            return sum(body["ids"][1] in groups for body in fake.bodies("complete_trajectory"))

        await until(lambda: over(0) == 8)
        for version in ("run/3", "other/4", "base/0", "run/3..5"):
            fake.policy_version = version
            await asyncio.sleep(0.05)
        await until(lambda: over(5) == 8)
        runner.stop()
        summary = await running
    parts = evaluated(fake)
    assert Counter(part.version for part in parts) == {0: 4, 5: 4}
    tasks = {
        (part.version, part.part): body["task"]["seed"]
        for body in fake.bodies("groups")
        if (part := EvaluatedTask.of(body.get("tags") or ()))
    }
    assert tasks[0, ("greedy", 1)] == tasks[0, ("sample", 1)] == tasks[5, ("greedy", 1)] != tasks[0, ("greedy", 0)]
    kinds = {b["group_id"]: part.kind for b in fake.bodies("groups") if (part := EvaluatedTask.of(b.get("tags") or ()))}
    chats = [(body, headers) for name, body, headers in fake.requests if name == "chat/completions"]
    assert {(kinds.get(b["ids"][1], "train"), b["temperature"], h["x-claw-channel"]) for b, h in chats} == {
        ("greedy", 0.0, "val"),
        ("sample", 0.7, "val"),
        ("train", 0.7, "train"),
    }
    assert summary.calls_replied == len(chats)


async def test_a_version_that_nobody_could_play_in_time_is_left_for_the_newest() -> None:
    """Two were due while another evaluation went on: one is played."""
    plan = RunPlan(run_id="run", eval_every=2, eval_tasks=1, eval_samples=0)
    async with FakeGateway() as fake, GatewayClient(fake.url, channel="val", settings=QUICK) as client:
        evaluation = VersionEvaluation(Ask(), client, plan)
        for label in ("run/0", "run/1", "run/2", "run/2", "run/4"):
            evaluation.saw(label)
        playing = asyncio.create_task(evaluation.run())
        await until(lambda: len(fake.bodies("complete_trajectory")) == 1)
        playing.cancel()
    assert [part.version for part in evaluated(fake)] == [4]


def test_versions_are_those_of_a_run() -> None:
    """Without a run there is nothing to count."""
    with pytest.raises(InvalidPlan, match="run_id"):
        RunPlan(eval_every=3)

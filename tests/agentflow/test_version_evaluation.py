"""Evaluation beside training: when it is due, what is played, and how its groups can be told."""

import asyncio
from collections import Counter

import pytest

from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.errors import InvalidPlan
from claw_r1.agentflow.flow import AgentFlow
from claw_r1.agentflow.runner import Runner
from claw_r1.agentflow.settings import AgentFlowSettings, RunPlan
from claw_r1.agentflow.tasks import TaskList
from claw_r1.agentflow.version_evaluation import VersionEvaluation
from claw_r1.schemas.evaluation import EvaluatedTask
from tests.agentflow.fake_gateway import FakeGateway
from tests.patience import until_async

QUICK = AgentFlowSettings(retry_budget_s=0.5, retry_pause_s=0.01, drain_timeout_s=0.2, stats_interval_s=0.02)


class Ask(AgentFlow):
    """Asks once; how it samples is its own."""

    async def run(self, episode: Episode) -> None:
        await episode.chat([{"role": "user", "content": str(episode.task["seed"])}], temperature=0.7)
        episode.outcome = 1.0


class Hold(AgentFlow):
    """Asks once, and goes on until it is stopped: its runner goes on as long."""

    async def run(self, episode: Episode) -> None:
        await episode.chat([{"role": "user", "content": "?"}], temperature=0.7)
        await asyncio.Event().wait()


def evaluated(fake: FakeGateway) -> list[EvaluatedTask]:
    parts = (EvaluatedTask.of(body.get("tags") or ()) for body in fake.bodies("groups") if body["channel"] == "val")
    return [part for part in parts if part is not None]


async def test_every_k_versions_the_same_tasks_are_played_greedily_and_sampled() -> None:
    """At 0, and at 5 because 4 was never seen; each task once at temperature 0 and three times as the flow samples, whatever the run is called."""
    plan = RunPlan(
        run_id="größe 2", group_size=2, concurrency=4, eval_every=4, eval_count=2, eval_samples=3, tag=("env:ask",)
    )
    async with (
        FakeGateway(policy_version="größe 2/0") as fake,
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

        await until_async(lambda: over(0) == 8)
        for version in ("größe 2/3", "other/4", "base/0", "größe 2/3..5"):
            fake.policy_version = version
            await asyncio.sleep(0.05)
        await until_async(lambda: over(5) == 8)
        runner.stop()
        summary = await running
    assert {body["tags"][-1] for body in fake.bodies("groups")} == {"env:ask"}
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
    plan = RunPlan(run_id="run", eval_every=2, eval_count=1, eval_samples=0)
    async with FakeGateway() as fake, GatewayClient(fake.url, channel="val", settings=QUICK) as client:
        evaluation = VersionEvaluation(Ask(), client, plan)
        for label in ("run/0", "run/1", "run/2", "run/2", "run/4"):
            evaluation.saw(label)
        playing = asyncio.create_task(evaluation.run())
        await until_async(lambda: len(fake.bodies("complete_trajectory")) == 1)
        playing.cancel()
    assert [part.version for part in evaluated(fake)] == [4]


@pytest.mark.parametrize("held_out", [None, [{"seed": 91}, {"seed": 92}]])
async def test_held_out_tasks_are_evaluated_and_said_to_be(held_out: list[dict[str, object]] | None) -> None:
    """Each once, fewer than `eval_count` where there are fewer; without any the training's are, and said not to be."""
    plan = RunPlan(run_id="run", group_size=1, concurrency=2, groups_max=1, eval_every=4, eval_count=3, eval_samples=0)
    trained = TaskList([{"seed": number} for number in range(2)])
    async with (
        FakeGateway(policy_version="run/0") as fake,
        GatewayClient(fake.url, channel="train", settings=QUICK) as client,
        GatewayClient(fake.url, channel="val", settings=QUICK) as val,
    ):
        evaluated_tasks = None if held_out is None else TaskList(held_out)
        runner = Runner(Hold(), client, plan, evaluation_client=val, tasks=trained, held_out=evaluated_tasks)
        running = asyncio.create_task(runner.run())
        await until_async(lambda: len(evaluated(fake)) == 2)
        runner.stop()
        await running
    assert {(part.tasks, part.held_out) for part in evaluated(fake)} == {(2, held_out is not None)}
    played = {body["channel"]: set() for body in fake.bodies("groups")}
    for body in fake.bodies("groups"):
        played[body["channel"]].add(body["task"]["seed"])
    assert played["val"] == ({91, 92} if held_out else {0, 1})
    assert played["train"] <= {0, 1}


def test_versions_are_those_of_a_run() -> None:
    """Without a run there is nothing to count."""
    with pytest.raises(InvalidPlan, match="run_id"):
        RunPlan(eval_every=3)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"eval_every": 1, "eval_tasks": "a", "eval_holdout": 0.1}, "--eval-tasks or --eval-holdout"),
        ({"eval_tasks": "a"}, "--eval-every"),
        ({"eval_holdout": 0.1}, "--eval-every"),
    ],
)
def test_tasks_of_evaluations_that_make_no_sense_are_refused(settings: dict[str, object], says: str) -> None:
    """Both ways at once, or for evaluations that nobody asked for."""
    with pytest.raises(InvalidPlan, match=says):
        RunPlan(run_id="run", **settings)  # type: ignore[arg-type]  # fields by name, of any type

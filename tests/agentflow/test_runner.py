import asyncio
import os
import resource
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from claw_r1.agentflow.bodies import TrajectoryId
from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode, EpisodeResult
from claw_r1.agentflow.errors import EpisodesFailing, GatewayUnavailable, InvalidPlan
from claw_r1.agentflow.evaluate import evaluate
from claw_r1.agentflow.flow import AgentFlow
from claw_r1.agentflow.runner import Runner
from claw_r1.agentflow.settings import AgentFlowSettings, EvaluationPlan, RunPlan
from claw_r1.agentflow.stats import Stats, progress_line
from claw_r1.agentflow.tasks import TaskList
from claw_r1.datapool.batch.selection import select
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.schemas.events import CallCaptured, GroupOpened, TrajectoryCompleted
from claw_r1.schemas.json_values import json_digest
from tests.agentflow.fake_gateway import FakeGateway
from tests.datapool.batch.selecting import chosen
from tests.gateway.engine import ScriptedEngine, completion
from tests.gateway.house import House, record, started
from tests.patience import until_async
from tests.trainer.pooled import RUN, pooled

QUICK = AgentFlowSettings(retry_budget_s=0.5, retry_pause_s=0.01, drain_timeout_s=0.2, stats_interval_s=0.02)


class Echo(AgentFlow):
    """Counts how many episodes run at once; every third member fails where `fails` is set."""

    def __init__(self, fails: bool = False, hang: bool = False) -> None:
        self.fails, self.hang = fails, hang
        self.now = self.most = self.started = self.replied = 0
        self.full = asyncio.Event()  # the fourth has had their reply

    async def run(self, episode: Episode) -> None:
        self.now, self.started = self.now + 1, self.started + 1
        self.most, number = max(self.most, self.now), self.started
        try:
            await episode.chat([{"role": "user", "content": str(episode.task["seed"])}], temperature=1.0)
            self.replied += 1
            if self.replied == 4:
                self.full.set()
            if self.hang:
                await asyncio.Event().wait()
            if self.fails and number % 3 == 0:
                raise ValueError("every third")
            episode.outcome = 0.5
        finally:
            self.now -= 1


async def test_groups_share_their_task_and_members_are_told_apart(tmp_path: Path) -> None:
    """G trajectories per group, all with the group's task, no more than `concurrency` at once, every call counted."""
    flow, replied = Echo(), tmp_path / "replied.txt"
    plan = RunPlan(group_size=4, concurrency=8, groups_max=6, run_id="r", replied=replied)
    async with FakeGateway(refusals=3) as fake, GatewayClient(fake.url, settings=QUICK) as client:
        summary = await Runner(flow, client, plan).run()
    tasks = {body["group_id"]: str(body["task"]["seed"]) for body in fake.bodies("groups")}
    chats = fake.bodies("chat/completions")
    assert len(tasks) == len(set(tasks.values())) == 6
    assert len({chat["ids"] for chat in chats}) == len(chats) == summary.calls_replied == 24
    assert len(set(replied.read_text().splitlines())) == 24
    assert all(chat["messages"][0]["content"] == tasks[chat["ids"][1]] for chat in chats)
    assert flow.most <= 8
    assert (summary.groups_opened, summary.groups_refused, summary.reward_mean) == (6, 3, 0.5)


async def test_the_same_seed_plays_the_same_tasks() -> None:
    """Tasks are a function of the run's seed; group ids are not, so that a restarted runner mixes nothing."""
    tasks, ids = [], []
    for _ in range(2):
        async with FakeGateway() as fake, GatewayClient(fake.url, settings=QUICK) as client:
            await Runner(Echo(), client, RunPlan(group_size=1, concurrency=1, groups_max=5, seed=7)).run()
        tasks.append([body["task"] for body in fake.bodies("groups")])
        ids += [body["group_id"] for body in fake.bodies("groups")]
    assert tasks[0] == tasks[1]
    assert len(set(ids)) == 10


async def test_failing_episodes_do_not_stop_the_run() -> None:
    """Exceptions of a flow are counted as failed episodes while the others go on."""
    async with FakeGateway() as fake, GatewayClient(fake.url, settings=QUICK) as client:
        summary = await Runner(Echo(fails=True), client, RunPlan(group_size=3, concurrency=3, groups_max=4)).run()
    assert (summary.episodes_completed, summary.episodes_failed) == (8, 4)
    assert len(fake.bodies("complete_trajectory")) == 12


def refused(_: object) -> str:
    """As the gateway answers for a model that nobody serves."""
    error = '{"error": {"message": "no worker serves typo", "code": "model_not_found"}}'
    raise web.HTTPNotFound(text=error, content_type="application/json")


async def test_a_run_whose_episodes_all_fail_for_one_reason_ends_with_it(tmp_path: Path) -> None:
    """After so many in a row, with the answer that each of them got; by default all that are under way may fail twice."""
    stats = tmp_path / "stats.json"
    for plan, least in (
        (RunPlan(group_size=2, concurrency=4, give_up_after=6, stats=stats), 6),
        (RunPlan(group_size=2, concurrency=20), 40),
        (RunPlan(group_size=1, concurrency=1), 32),
    ):
        async with FakeGateway(model=refused) as fake, GatewayClient(fake.url, settings=QUICK) as client:
            with pytest.raises(EpisodesFailing) as end:
                await Runner(Echo(), client, plan).run()
        reason = "RequestRefused: HTTP 404 (model_not_found): no worker serves typo; --give-up-after 0"
        assert f"{least} episodes failed one after the other, and none came to an outcome: {reason}" in str(end.value)
        ends = fake.bodies("complete_trajectory")
        assert least <= len(ends) <= least + plan.concurrency
        assert {body["status"] for body in ends} == {"failed"}
    counts = orjson.loads(stats.read_bytes())
    assert (counts["state"], counts["failed_for"][:14]) == ("ended", "RequestRefused")
    assert counts["failed_in_a_row"] >= 6


async def test_a_run_may_be_told_to_play_on_whatever_fails() -> None:
    """Its groups are played to the last, and the answer is exit code 1 at the end."""
    plan = RunPlan(group_size=2, concurrency=4, groups_max=20, give_up_after=0)
    async with FakeGateway(model=refused) as fake, GatewayClient(fake.url, settings=QUICK) as client:
        summary = await Runner(Echo(), client, plan).run()
    assert (summary.episodes_failed, summary.failed_in_a_row, summary.all_failed) == (40, 40, True)


def result(failure: str | None = None, reward: float | None = None) -> EpisodeResult:
    trajectory, status = TrajectoryId("t", "g"), "completed" if failure is None else "failed"
    return EpisodeResult(trajectory, status, True, reward, 0, 0, (), (), failure)


@pytest.mark.parametrize(
    ("ends", "in_a_row"),
    [
        ([result("KeyError: a")] * 3, 3),
        ([result("KeyError: a"), result(), result("KeyError: a")], 1),
        ([result("KeyError: a"), result("KeyError: b")], 1),
        ([result("KeyError: a"), result("KeyError: a", reward=0.0)], 0),
        ([result(f"no answer from http://host:8000/{n}f{n}/g-{n}/v1 for {n} s") for n in range(3)], 3),
        ([result(f"ended with exit code 1; its last words: {word!r}") for word in ("/tmp/a", "/tmp/b")], 2),
    ],
)
def test_failures_count_in_a_row_by_their_reason(ends: list[EpisodeResult], in_a_row: int) -> None:
    """An outcome between them ends the row, as do another reason and a failure that was rewarded; ids make no other reason."""
    stats = Stats(run_id=None, channel="train")
    for end in ends:
        stats.count(end)
    assert stats.failed_in_a_row == in_a_row
    assert stats.failed_for == (ends[-1].failure if in_a_row else None)


async def test_stop_ends_the_run_within_its_limit(tmp_path: Path) -> None:
    """After a stop no group is opened, hanging episodes are failed and told, the file says that it ended."""
    stats, flow = tmp_path / "stats.json", Echo(hang=True)
    async with FakeGateway() as fake, GatewayClient(fake.url, settings=QUICK) as client:
        runner = Runner(flow, client, RunPlan(group_size=2, concurrency=4, stats=stats))
        running = asyncio.create_task(runner.run())
        async with asyncio.timeout(5):
            await flow.full.wait()
            assert orjson.loads(stats.read_bytes())["state"] == "running"
            runner.stop()
            summary = await running
    assert (summary.groups_opened, summary.episodes_failed) == (2, 4)
    assert (summary.calls_replied, summary.calls_unanswered) == (4, 0)  # they hang in the flow, behind a reply
    assert {body["status"] for body in fake.bodies("complete_trajectory")} == {"failed"}
    assert orjson.loads(stats.read_bytes())["state"] == "ended"
    assert {name for _, _, names in os.walk(tmp_path) for name in names} == {"stats.json"}


async def test_a_file_that_cannot_be_written_for_a_while_ends_nothing(tmp_path: Path) -> None:
    """Progress is told all the same, and the counts are written when there is room again."""
    folder, away = tmp_path / "counts", tmp_path / "away"
    folder.mkdir()
    stats, heard, flow = folder / "stats.json", [0], Echo(hang=True)
    plan = RunPlan(group_size=2, concurrency=4, stats=stats, replied=folder / "replied")
    async with FakeGateway() as fake, GatewayClient(fake.url, settings=QUICK) as client:
        runner = Runner(flow, client, plan, lambda _: heard.append(heard[-1] + 1))
        running = asyncio.create_task(runner.run())
        async with asyncio.timeout(5):
            await flow.full.wait()
            folder.rename(away)
            told = heard[-1]
            await until_async(lambda: heard[-1] > told + 2)
            runner.stop()
            await running
            assert not folder.exists()
            away.rename(folder)
            assert (await Runner(Echo(), client, plan.model_copy(update={"groups_max": 1})).run()).groups_finished == 1
    assert orjson.loads(stats.read_bytes())["state"] == "ended"


async def test_a_disk_that_gets_full_leaves_no_half_of_a_call(tmp_path: Path) -> None:
    """The next id would stand behind it, on one line: a call that nobody ever made."""
    replied, ids = tmp_path / "replied", [letter * 32 for letter in "abc"]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with FakeGateway() as fake, GatewayClient(fake.url, settings=QUICK) as client:
        runner = Runner(Echo(), client, RunPlan(group_size=1, concurrency=1, replied=replied))
        runner._write_replied(ids[:1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, before[1]))  # as a disk with so much room
        try:
            with capture_logs() as lines:  # whose own file has no more room
                runner._write_replied(ids[1:2])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        runner._write_replied(ids[2:])
    assert replied.read_text().splitlines() == [ids[0], ids[2]]
    assert [line["event"] for line in lines] == ["replied_not_written"]


@pytest.mark.parametrize("name", ["stats", "replied"])
def test_a_file_that_can_never_be_written_is_said_before_anything_is_played(tmp_path: Path, name: str) -> None:
    """Not after hours, as the error of its end."""
    with pytest.raises(InvalidPlan, match="there is no directory"):
        RunPlan(**{name: tmp_path / "none" / "file"})


async def test_a_call_without_a_reply_is_counted_as_such() -> None:
    """The gateway may have captured it, so whoever compares counts has to know."""
    answers = iter(["hello", "hello"])
    async with FakeGateway(model=lambda _: next(answers)) as fake, GatewayClient(fake.url, settings=QUICK) as client:
        summary = await Runner(Echo(), client, RunPlan(group_size=4, concurrency=4, groups_max=1)).run()
    assert (summary.calls_replied, summary.calls_unanswered) == (2, 2)
    assert (summary.episodes_completed, summary.episodes_failed) == (2, 2)


async def test_a_gateway_that_never_answers_ends_the_run() -> None:
    """When no group can be opened within the budget, the run raises instead of waiting for ever."""
    async with FakeGateway() as fake:
        url = fake.url
    async with GatewayClient(url, settings=QUICK) as client:
        with pytest.raises(GatewayUnavailable):
            await Runner(Echo(), client, RunPlan(group_size=1, concurrency=1)).run()


def test_a_group_that_can_never_start_is_refused() -> None:
    """A group larger than the concurrency is a contradiction."""
    with pytest.raises(InvalidPlan, match="does not fit"):
        RunPlan(group_size=8, concurrency=4)


async def test_evaluation_is_greedy_on_val_and_waits_for_nobody() -> None:
    """Every task once, temperature 0 whatever the flow asks for, channel val, no admission; transcripts in order."""
    async with FakeGateway() as fake, GatewayClient(fake.url, channel="val", settings=QUICK) as client:
        result = await evaluate(Echo(), client, EvaluationPlan(episodes=5, seed=1, concurrency=2))
    assert {(body["channel"], body["admission"], body["size"]) for body in fake.bodies("groups")} == {("val", False, 1)}
    assert {chat["temperature"] for chat in fake.bodies("chat/completions")} == {0.0}
    assert (result.reward_mean, result.calls_replied, result.policy_versions) == (0.5, 5, ("run/3",))
    assert [episode.transcript[-1]["content"] for episode in result.episodes] == ["hello"] * 5


async def test_a_run_has_an_order_and_goes_on_behind_what_was_opened() -> None:
    """With a run id, groups have ordinals and ids of their own: the next runner begins behind the last one, and what another
    runner has opened meanwhile is left out. The task of an ordinal is the same whoever asks."""
    plan = RunPlan(group_size=1, concurrency=1, groups_max=3, run_id="r")
    async with FakeGateway() as fake, GatewayClient(fake.url, settings=QUICK) as client:
        for _ in range(2):
            await Runner(Echo(), client, plan).run()
        first = fake.bodies("groups")
        (order,) = fake.ordinals
        fake.requests.clear()
        fake.ordinals[order], fake.rivals = 0, 2
        await Runner(Echo(), client, plan).run()
        again = fake.bodies("groups")
    assert [(body["group_id"], body["ordinal"]) for body in first] == [(f"{order}-{k}", k) for k in range(6)]
    assert [body["ordinal"] for body in again] == [2, 3, 4]
    assert [body["task"] for body in again] == [body["task"] for body in first[2:5]]


async def test_a_run_with_a_curriculum_goes_on_as_if_it_had_not_been_killed() -> None:
    """What rests is known from the gateway alone: a runner that was cut off and another one after it open what one does, and say
    how many tasks rest and how many groups of them were opened."""
    tasks = TaskList([{"seed": n} for n in range(6)])
    ids, plan = {n: json_digest({"seed": n}) for n in range(6)}, {"group_size": 1, "concurrency": 1, "run_id": "r"}
    plan |= {"curriculum_rate": 0.5, "curriculum_groups": 1}

    async def played(*parts: int) -> list[int]:
        async with FakeGateway() as fake, GatewayClient(fake.url, settings=QUICK) as client:
            fake.returns = {ids[0]: [[0.0, 0.5]], ids[1]: [[1.0, 1.0]], ids[2]: [[0.0, 1.0]]}
            for groups in parts:
                self = Runner(Echo(), client, RunPlan(**plan, groups_max=groups), tasks=tasks)
                summaries.append(await self.run())
            return [body["task"]["seed"] for body in fake.bodies("groups")]

    summaries = []
    whole = await played(60)
    assert await played(7, 53) == whole
    assert (summaries[0].tasks_at_rest, summaries[0].groups_at_rest) == (2, whole.count(0) + whole.count(1))
    assert f"tasks at rest 2, {summaries[0].groups_at_rest / 60:.0%} of the groups" in progress_line(summaries[0], 60)
    assert 0 < summaries[0].groups_at_rest < 60 * 0.3


async def test_a_curriculum_learns_while_it_plays() -> None:
    """What the pool says in the middle of a run counts from then on."""
    async with FakeGateway() as fake, GatewayClient(fake.url, settings=QUICK) as client:
        tasks = TaskList([{"seed": n} for n in range(4)])

        def answer(_: object) -> str:
            if len(fake.bodies("groups")) == 40:
                fake.returns = {json_digest({"seed": n}): [[0.0, 0.0]] for n in range(3)}
            return "hello"

        fake.model = answer
        plan = RunPlan(
            group_size=1, concurrency=1, run_id="r", groups_max=200, curriculum_rate=0.01, curriculum_groups=1
        )
        await Runner(Echo(), client, plan, tasks=tasks).run()
    seeds = [body["task"]["seed"] for body in fake.bodies("groups")]
    assert sorted(seeds[:40]) == sorted(list(range(4)) * 10)
    assert seeds[44:].count(3) > 0.85 * len(seeds[44:])


def test_a_curriculum_needs_a_run() -> None:
    """Its groups are where the history is."""
    with pytest.raises(InvalidPlan, match="--run-id"):
        RunPlan(curriculum_rate=0.1)


async def test_a_batch_of_environments_is_made_of_the_groups_of_their_runners() -> None:
    """A runner for each, whose tag says which it plays: the gateway stores it with the group, and the shares of a spec go by it."""
    with ScriptedEngine(lambda asked: completion(asked.json, versions=f"{RUN}/0")) as engine, House() as house:
        house.worker(engine.url)
        house.admission.apply(record(started(RUN, 9)))
        async with GatewayClient(house.url, run_id=RUN, model="tiny", settings=QUICK) as client:
            for seed, name in enumerate(("maths", "code", "games")):
                plan = RunPlan(group_size=2, concurrency=2, groups_max=2, run_id=RUN, seed=seed, tag=(f"env:{name}",))
                await Runner(Echo(), client, plan).run()
        opened = {event.group_id: event.tags for event in house.events(GroupOpened)}
        world = pooled(
            event for kind in (GroupOpened, CallCaptured, TrajectoryCompleted) for event in house.events(kind)
        )
    spec = BatchSpec(groups_per_batch=4, group_size=2, staleness_max=9, environments={"maths": 0.5, "code": 0.5})
    batch = select(world.pool, spec, 0, RUN, ())
    assert sorted(opened[name] for name in chosen(batch)) == [("env:code",)] * 2 + [("env:maths",)] * 2
    assert set(batch.skipped.values()) == {"environment_without_share: games"}


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"tag": ("",)}, "1 to 512 printable"),
        ({"tag": ("x" * 513,)}, "1 to 512 printable"),
        ({"tag": ("env:\n",)}, "1 to 512 printable"),
        ({"tag": ("evaluation.version=1",)}, "begin with evaluation"),
        ({"tag": ("x",) * 33}, "at most 32"),
        ({"tag": ("x",) * 25, "run_id": "r", "eval_every": 1}, "at most 24"),
    ],
)
def test_tags_that_the_gateway_would_refuse_are_refused_at_the_start(plan: dict[str, object], says: str) -> None:
    """Not when a first evaluation is due, whose groups have tags of their own beside."""
    with pytest.raises(InvalidPlan, match=says):
        RunPlan(**plan)  # type: ignore[arg-type]  # fields by name, of any type

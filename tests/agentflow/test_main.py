import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from claw_r1.agentflow.tasks import Curriculum, TaskList
from claw_r1.schemas.json_values import json_digest
from tests.agentflow.fake_gateway import FakeGateway
from tests.agentflow.test_runner import refused

pytestmark = pytest.mark.process

FLOW = ("--flow", "claw_r1.claw.demo.verbs.flow:VerbsFlow")


async def started(*arguments: str) -> Process:
    """The runner, with no `CLAW_` variable of whoever runs the tests: it says in a line which ones it keeps from a command."""
    own = {name: value for name, value in os.environ.items() if not re.match("CLAW_(?!AGENTFLOW_)", name)}
    command = (sys.executable, "-m", "claw_r1.agentflow", *arguments)
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, env=own)


async def test_eval_prints_one_object_with_its_transcripts() -> None:
    """`eval` exits 0 with one JSON object on stdout: mean reward, and each conversation."""
    async with FakeGateway() as fake:
        process = await started("eval", *FLOW, "--gateway", fake.url, "--episodes", "3")
        out, err = await process.communicate()
    assert process.returncode == 0, err
    result = json.loads(out)
    assert (result["reward_mean"], result["calls_replied"], len(result["episodes"])) == (0.0, 3, 3)
    assert result["episodes"][0]["transcript"][-1] == {"role": "assistant", "content": "hello"}


async def test_the_file_of_a_result_is_looked_at_before_anything_is_played(tmp_path: Path) -> None:
    """One line, exit 2, and no group."""
    async with FakeGateway() as fake:
        for out_file in (tmp_path / "none" / "result.json", tmp_path):
            process = await started("eval", *FLOW, "--gateway", fake.url, "--episodes", "1", "--out", str(out_file))
            out, err = await process.communicate()
            assert (process.returncode, out, err.count(b"\n")) == (2, b"", 1), err
            assert err.startswith(f"agentflow: {out_file} cannot be written: ".encode())
    assert fake.requests == []


async def test_a_result_is_printed_though_its_file_has_no_room() -> None:
    """A disk that is full at the end takes nothing of what was measured: one line says it, exit 2."""
    async with FakeGateway() as fake:
        process = await started("eval", *FLOW, "--gateway", fake.url, "--episodes", "2", "--out", "/dev/full")
        out, err = await process.communicate()
    assert (process.returncode, json.loads(out)["calls_replied"]) == (2, 2)
    assert err.startswith(b"agentflow: /dev/full is not whole, the result stands on stdout alone: ")
    assert err.count(b"\n") == 1


async def test_sigterm_ends_a_run_with_its_summary() -> None:
    """A run without end stops at SIGTERM, exits 0, and what it counted is what the gateway answered."""
    seen = asyncio.Event()

    def model(messages: object) -> str:
        seen.set()
        return "hello"

    async with FakeGateway(model) as fake:
        process = await started("run", *FLOW, "--gateway", fake.url, "--run-id", "r", "--concurrency", "8")
        async with asyncio.timeout(60):
            await seen.wait()
            process.send_signal(signal.SIGTERM)
            out, err = await process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)["calls_replied"] == len(fake.bodies("chat/completions")) > 0


async def test_a_run_says_how_far_it_is(monkeypatch) -> None:
    """Every some seconds a line on stderr tells groups, episodes, reward, calls, refusals and the time that is left; the last
    one is of the end. On stdout there is one JSON object and nothing else."""
    monkeypatch.setenv("CLAW_AGENTFLOW_PROGRESS_INTERVAL_S", "0.05")
    monkeypatch.setenv("CLAW_AGENTFLOW_STATS_INTERVAL_S", "0.05")
    size = ("--group-size", "2", "--concurrency", "2", "--groups-max", "200")  # more than fit between two lines
    async with FakeGateway(refusals=3) as fake:
        process = await started("run", *FLOW, "--gateway", fake.url, *size)
        out, err = await process.communicate()
    assert json.loads(out)["groups_finished"] == 200
    lines = err.decode().splitlines()
    assert len(lines) >= 2, "before the end, too"
    assert re.search(
        r"groups \d+ of 200 opened, \d+ finished  episodes \d+, \d+ under way .* about \d+ s left$",
        "\n".join(lines),
        re.MULTILINE,
    )
    last = "groups 200 of 200 opened, 200 finished  episodes 400, 0 under way  reward 0.00 (last 64: 0.00)  calls 400  told to wait 3 times"
    assert lines[-1].endswith(last)


async def test_a_run_that_stands_still_says_for_what_it_waits(monkeypatch) -> None:
    """A run id that no trainer has (a typo, say) would otherwise look like patience."""
    monkeypatch.setenv("CLAW_AGENTFLOW_PROGRESS_INTERVAL_S", "0.05")
    monkeypatch.setenv("CLAW_AGENTFLOW_STATS_INTERVAL_S", "0.05")
    async with FakeGateway(refusals=10**6, refusal="run_unknown") as fake:
        process = await started("run", *FLOW, "--gateway", fake.url, "--run-id", "typo")
        assert process.stderr is not None
        async with asyncio.timeout(60):
            line = b""
            while b"waiting for the trainer" not in line:  # before its first answer it waits for that
                line = await process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert line.endswith(b"waiting for the trainer: nobody has started a run of this id\n")


async def test_a_run_that_fails_for_one_reason_says_it_while_it_plays_and_ends_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever it waits for meanwhile: exit 2, and the gateway's own sentence."""
    monkeypatch.setenv("CLAW_AGENTFLOW_PROGRESS_INTERVAL_S", "0.01")
    monkeypatch.setenv("CLAW_AGENTFLOW_STATS_INTERVAL_S", "0.01")
    size = ("--group-size", "1", "--concurrency", "1", "--give-up-after", "30", "--model", "typo")
    async with FakeGateway(model=refused) as fake, asyncio.timeout(60):
        process = await started("run", *FLOW, "--gateway", fake.url, *size)
        assert process.stderr is not None
        said = b""
        while b"episodes failed: " not in said:
            said += await process.stderr.readline()
            fake.refusals = 1  # the trainer is behind, too
        out, rest = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    sentence = b"RequestRefused: HTTP 404 (model_not_found): no worker serves typo"
    assert b"episodes failed: " + sentence in said.splitlines()[-1]
    last = b"agentflow: 30 episodes failed one after the other, and none came to an outcome: " + sentence
    assert rest.splitlines()[-1].startswith(last)


@pytest.mark.parametrize("verb", [("run", "--groups-max", "2", "--group-size", "2"), ("eval", "--episodes", "2")])
async def test_a_run_of_which_nothing_came_does_not_end_well(verb: tuple[str, ...]) -> None:
    """No episode completed: exit 1 and a line; a reward that nobody gave is null, and not 0."""
    async with FakeGateway() as fake:
        outcomes = {}
        for command in ("false", "true"):
            process = await started(*verb, "--command", command, "--gateway", fake.url)
            out, err = await process.communicate()
            outcomes[command] = process.returncode, json.loads(out), b"no episode completed" in err
    for command, code in (("false", 1), ("true", 0)):
        returncode, result, said = outcomes[command]
        assert (returncode, said, result["reward_mean"]) == (code, bool(code), None)


async def test_a_run_goes_on_when_nobody_watches() -> None:
    """Whoever read stderr may leave: what is played is not theirs."""
    watched, stderr = os.pipe()
    os.close(watched)
    size = ("--group-size", "1", "--concurrency", "1", "--groups-max", "2")
    async with FakeGateway() as fake:
        arguments = ("-m", "claw_r1.agentflow", "run", *FLOW, "--gateway", fake.url, *size)
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, stderr=stderr)
        os.close(stderr)
        out, _ = await process.communicate()
    assert json.loads(out)["groups_finished"] == 2
    assert process.returncode == 0


async def test_what_cannot_run_is_one_line(tmp_path: Path) -> None:
    """A wrong flow, command or reward, a broken line of a task file, a contradiction: exit 2, one line on stderr, no traceback."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"n": 1}\n{"n": \n')
    black_box = ("--command", "true", *("--gateway", "http://127.0.0.1:9"))
    nobody = ("--gateway", "http://127.0.0.1:9")
    crowd = ("--group-size", "9", "--concurrency", "4")
    for arguments in (
        ("--flow", "no.such:Flow", *nobody),
        (*FLOW, *nobody, *crowd),
        (*FLOW, "--gateway", "nobody"),
        ("--command", "no-such-program", *nobody),
        (*black_box, "--reward", "no.such:score"),
        (*black_box, "--tasks", str(tasks)),
        (*black_box, *FLOW),
        (*black_box, "--deadline-s", "240"),
        (*black_box, "--episode-tokens-max", "9"),
        ("--command", "echo {task.question}", *nobody),
        (*FLOW, *nobody, "--run-id", "r", "--eval-every", "1", "--eval-tasks", "32"),
        (*FLOW, *nobody, "--run-id", "r", "--curriculum-rate", "0.1"),
        nobody,
    ):
        process = await started("run", *arguments)
        out, err = await process.communicate()
        assert (process.returncode, out, err.count(b"\n")) == (2, b"", 1), (arguments, err)
        assert err.startswith(b"agentflow: ")


async def test_a_killed_runner_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    """With a curriculum, killed in the middle of a group and started again: each ordinal has the task that follows from seed, tasks
    and what the gateway knows of them, and few of them rest."""
    tasks = [{"observations": [f"find {n}"]} for n in "abcd"]
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    known = {json_digest(task): [[0.0, 0.5]] for task in tasks[:2]}
    flags = ("--tasks", str(tmp_path / "tasks.jsonl"), "--run-id", "r", "--seed", "5", "--group-size", "2")
    flags += ("--concurrency", "4", "--curriculum-rate", "0.05", "--curriculum-groups", "1")
    many = asyncio.Event()

    def model(_: object) -> str:
        if len(fake.bodies("groups")) >= 30:
            many.set()
        return "hello"

    async with FakeGateway(model, returns=known) as fake, asyncio.timeout(60):
        process = await started("run", *FLOW, "--gateway", fake.url, *flags)
        await many.wait()
        process.kill()
        await process.communicate()
        process = await started("run", *FLOW, "--gateway", fake.url, *flags, "--groups-max", "30")
        out, err = await process.communicate()
    assert process.returncode == 0, err
    curriculum = Curriculum(TaskList(tasks), 0.05, groups=1, solved=1.0)
    curriculum.learn(known)
    drawn = {body["ordinal"]: body["task"] for body in fake.bodies("groups")}
    assert drawn == {ordinal: curriculum.at(ordinal, 5) for ordinal in drawn}
    assert sum(task in tasks[:2] for task in drawn.values()) < len(drawn) / 5
    assert (json.loads(out)["tasks_at_rest"], len(drawn) >= 60) == (2, True)
    assert b'"solved_by_none": 2, "of": 4' in err


async def test_tasks_of_evaluations_are_not_trained_on(tmp_path: Path) -> None:
    """Of a file beside the training's, or of a share of it: no task is played on both channels; without either, one line."""
    for name, numbers in (("train", range(40)), ("own", range(30, 50))):
        (tmp_path / name).with_suffix(".jsonl").write_text("".join(f'{{"n": {number}}}\n' for number in numbers))
    size = ("--group-size", "1", "--concurrency", "4", "--run-id", "run", "--eval-samples", "0", "--eval-every", "1")
    command = ("--command", "curl -sd '{}' {url}/chat/completions", "--tasks", str(tmp_path / "train.jsonl"))
    ways = (
        (("--eval-tasks", str(tmp_path / "own.jsonl")), set(range(30)), set(range(30, 50))),
        (("--eval-holdout", "0.25"), set(range(40)), set(range(40))),
    )
    for flags, may_train, may_evaluate in ways:
        async with FakeGateway(policy_version="run/0") as fake, asyncio.timeout(60):
            words = [word.replace("{url}", "$OPENAI_BASE_URL") for word in command]
            words[1] = f'sh -c "{words[1]}"'
            process = await started("run", *words, "--gateway", fake.url, *size, *flags)
            trained, evaluated = set[int](), set[int]()
            while len(trained) < 10 or len(evaluated) < 5:
                await asyncio.sleep(0.05)
                for body in fake.bodies("groups"):
                    (evaluated if body["channel"] == "val" else trained).add(body["task"]["n"])
            process.send_signal(signal.SIGTERM)
            _, err = await process.communicate()
        assert not trained & evaluated
        assert trained <= may_train
        assert evaluated <= may_evaluate
        assert b"tasks_held_out" in err
    process = await started("run", *FLOW, "--gateway", "http://127.0.0.1:9", *size, "--retry-budget-s", "0")
    _, err = await process.communicate()
    assert b"evaluated_on_trained_tasks" in err


async def test_sigterm_ends_an_evaluation() -> None:
    """One line more, exit 2; greedy and sampled episodes that were under way are reported as failed."""
    flags = ("--command", "sleep 60", "--episodes", "2", "--pass-at", "1", "--farewell-timeout-s", "30")
    async with FakeGateway() as fake, asyncio.timeout(60):
        process = await started("eval", *flags, "--gateway", fake.url)
        runner = psutil.Process(process.pid)
        while len(runner.children()) < 4:  # noqa: ASYNC110  # all are registered, and know it
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert err.endswith(b"agentflow: the evaluation was stopped before its end\n")
    assert [body["status"] for body in fake.bodies("complete_trajectory")] == ["failed"] * 4


async def test_a_command_that_must_choose_a_model_plays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several are served and none is named: exit 2 before the first group."""

    async def two(*_: object) -> web.Response:
        return web.json_response({"data": [{"id": "a"}, {"id": "b"}]})

    monkeypatch.setattr(FakeGateway, "_models", two)
    async with FakeGateway() as fake:
        process = await started("run", "--command", "true", "--gateway", fake.url, "--groups-max", "1")
        _, err = await process.communicate()
    assert (process.returncode, fake.bodies("groups")) == (2, [])
    assert b"name one with --model" in err

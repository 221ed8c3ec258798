"""Any program as an agent: what it gets, what becomes of it, and that nothing of it is left."""

import asyncio
import json
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from claw_r1.agentflow.black_box import BlackBox
from claw_r1.agentflow.bodies import TrajectoryId
from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode, EpisodeResult
from claw_r1.agentflow.errors import InvalidPlan
from claw_r1.agentflow.flow import play
from claw_r1.agentflow.settings import AgentFlowSettings, FlowSettings
from tests.agentflow.fake_gateway import FakeGateway
from tests.patience import until_async

pytestmark = pytest.mark.process

QUICK = AgentFlowSettings(retry_budget_s=0.5, retry_pause_s=0.01)
AGENT = """
import json, os, sys, urllib.request
task = json.load(sys.stdin)
assert task == json.load(open("task.json")) == json.load(open(os.environ["CLAW_TASK_FILE"])) == json.loads(sys.argv[1]), task
assert sys.argv[2:] == ["say " + task["word"], str(task["number"])] and os.listdir() == ["task.json"]
body = {"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": task["word"]}]}
for _ in range(2):
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode())
    print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
open("answer.txt", "w").write(os.environ["OPENAI_API_KEY"])
print("over", file=sys.stderr)
"""
REWARDS = """
import asyncio, sys, threading
def score(outcome):
    assert (outcome.exit_code, outcome.timed_out, outcome.stderr) == (0, False, "over\\n"), outcome
    assert (outcome.folder / "answer.txt").read_text() == "unused" and len(outcome.call_ids) == 2
    return outcome.task["number"] * (outcome.stdout == "hello\\nhello\\n")
async def later(outcome):
    await asyncio.sleep(0)
    return 1 / 4
def failures(outcome):
    return -1.0 if outcome.timed_out else -outcome.exit_code
def none(outcome):
    return None
def hang(outcome):
    open("asked", "a").write(".")
    threading.Event().wait()
async def wait(outcome):
    await asyncio.sleep(1e6)
def leave(outcome):
    sys.exit("over")
def run_out(outcome):
    next(iter(()))
MEETING = threading.Barrier(48)
def meet(outcome):
    MEETING.wait(50)
    return 1.0
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where somebody works, with an agent and reward functions; temporary directories of agents are made beside it."""
    (tmp_path / "work").mkdir()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "work" / "agent.py").write_text(AGENT)
    (tmp_path / "work" / "own_rewards.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path


async def played(
    fake: FakeGateway, command: str, sampling: dict[str, float] | None = None, **settings: object
) -> EpisodeResult:
    flow = BlackBox(FlowSettings(command=command, gateway=fake.url, **settings), None)  # type: ignore[arg-type]  # fields by name, of any type
    async with GatewayClient(fake.url, settings=QUICK) as client:
        task = {"word": "hi", "number": 3}
        episode = Episode(client, TrajectoryId("t", "g/1"), task=task, seed=1, sampling=sampling)
        return await play(flow, episode, QUICK)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("temperature", "text"), [(0.0, "0"), (0.25, "0.25"), (1, "1")])
async def test_a_program_is_told_how_to_sample(temperature: float, text: str) -> None:
    """A shell compares texts."""
    command, sampling = f"sh -c 'test $CLAW_TEMPERATURE = {text}'", {"temperature": temperature}
    async with FakeGateway() as fake:
        result = await played(fake, command, sampling, reward="own_rewards.py:failures")
    assert result.reward == 0.0


async def test_a_program_gets_its_task_every_way_and_its_reward(place: Path) -> None:
    """Task by stdin, file and placeholders; base URL, key and model by environment; the completion carries no count of calls."""
    command = f"{sys.executable} agent.py '{{task}}' 'say {{task.word}}' {{task.number}}"
    async with FakeGateway() as fake:
        result = await played(fake, command, reward="own_rewards.py:score")
        later = await played(fake, command, reward="own_rewards:later")
    assert (result.status, result.reward, result.calls, result.policy_versions) == ("completed", 3.0, 2, ("run/3",))
    assert later.reward == 0.25
    (first, _) = fake.bodies("complete_trajectory")
    assert first == {"reward": 3.0, "status": "completed", "ids": ("t", "g/1")}
    assert [name for name, _, _ in fake.requests[:2]] == ["register_trajectory", "chat/completions"]
    assert list((place / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("command", "settings", "reward"),
    [
        ("false", {}, None),
        ("sh -c 'exit 3'", {"reward": "own_rewards.py:failures"}, None),
        ("sh -c 'exit 3'", {"reward": "own_rewards.py:failures", "judge_failures": True}, -3.0),
        ("sleep 60", {"command_timeout_s": 0.5}, None),
        ("sleep 60", {"command_timeout_s": 0.5, "reward": "own_rewards.py:failures", "judge_failures": True}, -1.0),
        ("true", {"reward": "own_rewards.py:none"}, None),
    ],
)
async def test_a_program_that_fails_is_a_failed_episode(
    place: Path, command: str, settings: dict[str, object], reward: float | None
) -> None:
    """Its exit code, its time limit or a reward that is none; unless the reward function judges failures, too."""
    async with FakeGateway() as fake:
        result = await played(fake, command, **settings)
    (body,) = fake.bodies("complete_trajectory")
    assert (result.status, body.get("reward")) == (("failed", None) if reward is None else ("completed", reward))
    assert list((place / "tmp").iterdir()) == []


NAP = f"987.{os.getpid()}"  # nobody else sleeps as long
FAMILY = f"sh -c 'sleep {NAP} & sleep {NAP} & yes | head -c 3000000; wait'"


def family() -> list[int]:
    return [process.pid for process in psutil.process_iter(["cmdline"]) if NAP in (process.info["cmdline"] or [])]


async def test_the_time_limit_ends_the_whole_process_group(place: Path) -> None:
    """Children of the command, too; what it said in millions of bytes held nobody up."""
    async with FakeGateway() as fake:
        playing = asyncio.create_task(played(fake, FAMILY, command_timeout_s=3))
        await until_async(lambda: len(family()) >= 2)
        assert (await playing).status == "failed"
    await until_async(lambda: not family())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_runner_that_ends_leaves_no_process(place: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Killed with -9 or asked to stop, with many commands under way: none of their processes is left."""
    monkeypatch.setenv("CLAW_AGENTFLOW_DRAIN_TIMEOUT_S", "0.1")
    monkeypatch.setenv("TMPDIR", str(place / "tmp"))
    size = ("--group-size", "4", "--concurrency", "16", "--run-id", "r")
    async with FakeGateway() as fake:
        arguments = ("-m", "claw_r1.agentflow", "run", "--command", FAMILY, "--gateway", fake.url, *size)
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, stderr=PIPE)
        await until_async(lambda: len(family()) >= 32)
        process.send_signal(number)
        out, err = await process.communicate()
    await until_async(lambda: not family())
    if number == signal.SIGTERM:
        assert (process.returncode, json.loads(out)["episodes_failed"]) == (0, 16), err
        assert {body["status"] for body in fake.bodies("complete_trajectory")} == {"failed"}
        assert list((place / "tmp").iterdir()) == []  # nobody waits


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"command": "no-such-program x"}, "no program 'no-such-program'"),
        ({"command": "'"}, "No closing quotation"),
        ({"command": ""}, "no program"),
        ({"command": "true", "reward": "nowhere:score"}, "ModuleNotFoundError"),
        ({"command": "true", "reward": "own_rewards.py:nothing"}, "nothing"),
        ({"command": "true", "reward": "gone.py:score"}, "no file"),
        ({"command": "true", "reward": "own_rewards"}, "'own_rewards' is not module:function or file.py:function"),
        ({"command": "true", "reward": "own_rewards.py:"}, "'own_rewards.py:' is not module:function"),
        ({"command": "true", "flow": "a:B"}, "give --flow or --command"),
        ({}, "give --flow or --command"),
        ({"flow": "a:B", "reward": "own_rewards.py:score"}, "--reward judges a --command"),
        (
            {"command": "true", "command_env": ("NOT_SET_HERE",)},
            "--command-env NOT_SET_HERE: there is no such variable",
        ),
    ],
)
def test_what_cannot_be_played_is_refused(place: Path, settings: dict[str, str], says: str) -> None:
    """A command or reward that is none, two agents or no agent: one line, before anything is opened."""
    with pytest.raises(InvalidPlan, match=says) as refusal:
        BlackBox(FlowSettings(gateway="http://127.0.0.1:9", **settings), None)  # type: ignore[arg-type]  # fields by name, of any type
    assert "\n" not in str(refusal.value)


def test_a_field_that_a_task_has_not_is_refused(place: Path) -> None:
    """Before the first episode, by the number of the task."""
    flow = BlackBox(FlowSettings(gateway="http://127.0.0.1:9", command="echo {task.word}"), None)
    with pytest.raises(InvalidPlan, match=r"names \{task.word\}, and task 2 has no such field"):
        flow.check([{"word": "a"}, {"other": "b"}])


def test_a_word_of_any_length_is_a_word(place: Path) -> None:
    """A script in the command is longer than any name of a file may be."""
    BlackBox(FlowSettings(gateway="http://127.0.0.1:9", command=f"sh -c '{'true; ' * 1000}'"), None)


async def test_a_choice_of_models_is_refused(place: Path) -> None:
    """Asked once; a name settles it."""

    async def served() -> list[str]:
        return ["a", "b"]

    plan = {"gateway": "http://127.0.0.1:9", "command": "true"}
    with pytest.raises(InvalidPlan, match="serves a, b: name one"):
        await BlackBox(FlowSettings(**plan), None).choose_model(served)  # type: ignore[arg-type]  # fields by name, of any type
    assert await BlackBox(FlowSettings(**plan, model="b"), None).choose_model(served) == "b"  # type: ignore[arg-type]  # fields by name, of any type


async def test_rewards_have_threads_of_their_own(place: Path) -> None:
    """Where all of asyncio's are busy, a reward is asked for, and the directory is deleted."""
    free = threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    busy = asyncio.create_task(asyncio.to_thread(free.wait))
    try:
        async with FakeGateway() as fake, asyncio.timeout(20):
            settings = {"reward": "own_rewards.py:failures", "judge_failures": True}
            assert (await played(fake, "sh -c 'exit 3'", **settings)).reward == -3.0
        assert list((place / "tmp").iterdir()) == []
    finally:
        free.set()
        await busy


@pytest.mark.parametrize("function", ["hang", "wait", "leave", "run_out"])
async def test_a_reward_function_that_gives_nothing_fails_its_episode(place: Path, function: str) -> None:
    """One that never returns costs the time that it may take; one that raises what ends loops or programs ends neither."""
    async with FakeGateway() as fake, asyncio.timeout(60):
        result = await played(fake, "true", reward=f"own_rewards.py:{function}", reward_timeout_s=0.2)
    assert result.status == "failed"


async def test_calls_of_a_reward_function_that_hang_have_a_bound(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can end a thread: beyond the bound the function is asked no more, and the episode says why."""
    monkeypatch.setattr("claw_r1.agentflow.black_box.HANGING_MAX", 2)
    async with FakeGateway() as fake:
        settings = FlowSettings(
            command="true", gateway=fake.url, reward="own_rewards.py:hang", reward_timeout_s=0.2, model="m"
        )
        flow = BlackBox(settings, None)
        before = threading.active_count()
        async with GatewayClient(fake.url, settings=QUICK) as client:
            for number in range(4):
                await play(flow, Episode(client, TrajectoryId(f"t{number}", "g/1"), task={}, seed=1), QUICK)
    assert threading.active_count() - before == 2


async def test_as_many_rewards_are_asked_for_at_once_as_episodes_play(place: Path) -> None:
    """48 functions that each wait for the 47 others meet, however few processors there are."""
    size = ("--group-size", "48", "--concurrency", "48", "--groups-max", "1", "--reward-timeout-s", "59", "--json")
    async with FakeGateway() as fake:
        arguments = ("--command", "true", "--reward", "own_rewards.py:meet", "--gateway", fake.url, *size)
        out = await run_to_its_end(*arguments)
    assert (out["episodes_completed"], out["reward_mean"]) == (48, 1.0)


async def test_a_runner_ends_although_a_reward_function_hangs(place: Path) -> None:
    """Asked to stop while it waits for rewards, it fails these episodes and its process ends."""
    size = ("--group-size", "4", "--concurrency", "4", "--reward-timeout-s", "3600", "--drain-timeout-s", "0.1")
    reward = ("--reward", "own_rewards.py:hang", "--deadline-s", "9999")
    async with FakeGateway() as fake, asyncio.timeout(120):
        arguments = ("-m", "claw_r1.agentflow", "run", "--command", "true", "--gateway", fake.url, *reward, *size)
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE, stderr=PIPE)
        await until_async(lambda: Path("asked").exists() and len(Path("asked").read_text()) == 4)
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert json.loads(out)["episodes_failed"] == 4, err


SECRETS = {
    "KAFKA_PASSWORD": "s1",
    "CLAW_AGENTFLOW_API_KEY": "s2",
    "GITHUB_TOKEN": "s3",
    "AWS_SECRET_ACCESS_KEY": "s4",
    "ANTHROPIC_API_KEY": "s5",
    "DATABASE_URL": "postgres://me:s6@host/db",
    "SCHEMA_REGISTRY_URL": "http://registry",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=s7",
    "PGPASSWORD": "s8",
    "MYSQL_PWD": "s9",
    "OPENAI_APIKEY": "s10",
    "GITHUB_PAT": "s11",
    "SENTRY_DSN": "s12",
    "PIP_INDEX_URL": "https://s13@host/simple",
}
PRINTS = f"{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"


async def test_a_command_sees_no_secret_of_the_runner(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither our settings nor what is named or written as a secret; what is no secret stays, and a name passes one on."""
    plain = {"TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "0", "HTTPS_PROXY": "http://proxy:3128"}
    plain |= {"PWD": str(place), "MAX_TOKENS": "5"}
    for name, value in {**SECRETS, **plain}.items():
        monkeypatch.setenv(name, value)
    (place / "work" / "keep.py").write_text(
        f"def keep(outcome):\n    open({str(place / 'env')!r}, 'w').write(outcome.stdout)\n    return 1"
    )
    async with FakeGateway() as fake:
        await played(fake, PRINTS, reward="keep.py:keep", command_env=("ANTHROPIC_API_KEY",))
    seen = json.loads((place / "env").read_text())
    assert seen.keys() & SECRETS.keys() == {"ANTHROPIC_API_KEY"}
    assert {name: seen.get(name) for name in (*plain, "PATH", "CLAW_SEED")} == {
        **plain,
        "PATH": os.environ["PATH"],
        "CLAW_SEED": "1",
    }


async def run_to_its_end(*arguments: str) -> dict[str, object]:
    command = (sys.executable, "-m", "claw_r1.agentflow", "run", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    assert out, err
    result: dict[str, object] = json.loads(out)
    return result


async def test_a_daemon_that_a_program_leaves_holds_no_pipe_of_ours(place: Path) -> None:
    """Whoever left the process group lives on, without a file descriptor of the runner's."""
    before = pipes()
    async with FakeGateway() as fake:
        await played(fake, "setsid -f sleep 8", command_timeout_s=1)
    await asyncio.sleep(0)
    assert pipes() <= before


def pipes() -> int:
    links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return sum("pipe:" in link or "socket:" in link for link in links)

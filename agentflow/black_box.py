"""Any program as an agent: a command that finds its model in OPENAI_BASE_URL, and a function that rewards it.

Invariant: of an episode's processes none is left when it ends, nor when the runner does (-9 included), as long as they stay in
the command's process group. Calls are not counted here: the completion is sent after the command has ended, so in
the log it follows every answered call, and a trajectory without a count consists of those.
"""

import asyncio
import inspect
import os
import re
import shlex
import shutil
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import orjson
import structlog
from pydantic import SecretStr

from claw_r1.agentflow.bodies import JsonObject
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.errors import AgentFailed, InvalidPlan
from claw_r1.agentflow.flow import AgentFlow, module_named
from claw_r1.agentflow.settings import FlowSettings
from claw_r1.runtime.processes.die_with_parent import dying_with_parent
from claw_r1.runtime.processes.reaper import KILL_NOW, reaped

log = structlog.get_logger()

PLACEHOLDER = re.compile(r"\{task(?:\.(\w+))?\}")
TASK_FILE = "task.json"
OUTPUT_BYTES_MAX = 1 << 20
"""The most bytes of stdout and of stderr, the last of each are kept."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command; a reward function gets it."""

    task: JsonObject
    exit_code: int
    """The exit code in a shell's terms: 128 + signal where one ended it."""
    timed_out: bool
    stdout: str
    stderr: str
    """Both end at the end; a long one has lost its beginning."""
    folder: Path
    """The folder where the command ran, with the files that it wrote; it is deleted when the reward is known."""
    call_ids: tuple[str, ...]
    """The ids of its model calls, as far as the gateway's process remembers them."""


RewardFunction = Callable[[Outcome], float | Awaitable[float]]

HANGING_MAX = 256
"""Calls of a reward function that were given up and still run: nobody can end a thread."""
OUR_SETTINGS = ("CLAW_", "KAFKA_", "SCHEMA_REGISTRY_", "OTEL_")
SECRET_WORDS = frozenset({"TOKEN", "KEY", "KEYS", "PASS", "PWD", "PAT", "AUTH", "DSN"})
SECRET_PART = re.compile(r"SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|APIKEY", re.IGNORECASE)
"""The parts of a name, anywhere in it, that mark a secret: `PGPASSWORD`."""
FOLDERS = ("PWD", "OLDPWD")
"""Names that only look like secrets."""
URL_WITH_USER = re.compile(r"://[^/@\s]+@")
"""A password, or a token in the place of the name."""


class BlackBox(AgentFlow):
    """Plays a command. Each episode has processes, a directory and a base URL of its own."""

    def __init__(self, settings: FlowSettings, api_key: SecretStr | None) -> None:
        """Raises InvalidPlan for a command or a reward function that is none."""
        self._settings, self._api_key = settings, api_key
        self._words = _words(settings.command or "")
        self._reward = None if settings.reward is None else load_reward(settings.reward)
        self._hanging: list[Thread] = []
        self._inherited = inherited(os.environ, settings.command_env)
        self._model = settings.model

    def check(self, tasks: Sequence[JsonObject]) -> None:
        """Raises InvalidPlan when the command names a field that a task has not."""
        fields = {field for word in self._words for field in PLACEHOLDER.findall(word) if field}
        for number, task in enumerate(tasks, start=1):
            if missing := sorted(fields - task.keys()):
                raise InvalidPlan(f"the command names {{task.{missing[0]}}}, and task {number} has no such field")

    async def run(self, episode: Episode) -> None:
        """One run of the command. Raises AgentFailed when it fails, and whatever the reward function raises."""
        episode.keeps_count = False
        await episode.announce()
        folder = Path(tempfile.mkdtemp(prefix="claw-agent-"))
        try:
            task = orjson.dumps(episode.task)
            (folder / TASK_FILE).write_bytes(task)
            argv = [_filled(word, episode.task) for word in self._words]
            environment = await self._environment(episode, folder)
            output = await _run(argv, task, environment, folder, self._settings.command_timeout_s)
            await episode.adopt_calls()
            await self._judge(episode, output, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # in no thread: those that there are may all be busy

    async def _environment(self, episode: Episode, folder: Path) -> dict[str, str]:
        names = {
            "OPENAI_BASE_URL": episode.base_url,
            "OPENAI_API_KEY": "unused" if self._api_key is None else self._api_key.get_secret_value(),
            "OPENAI_MODEL": await self.choose_model(episode.served_models),
            "CLAW_TASK_FILE": str(folder / TASK_FILE),
            "CLAW_SEED": str(episode.seed),
        }
        if "temperature" in episode.sampling:
            names["CLAW_TEMPERATURE"] = f"{episode.sampling['temperature']:g}"
        return {**self._inherited, **names}

    async def choose_model(self, served: Callable[[], Awaitable[list[str]]]) -> str:
        """The model of all episodes, asked for once. Raises InvalidPlan where there is a choice, and what `served` raises."""
        if self._model is None:
            names = await served()
            if len(names) != 1:
                raise InvalidPlan(f"the gateway serves {', '.join(names) or 'no model'}: name one with --model")
            self._model = names[0]
        return self._model

    async def _judge(self, episode: Episode, output: "_Output", folder: Path) -> None:
        code = output.exit_code
        if (code or output.timed_out) and not self._settings.judge_failures:
            limit_s = self._settings.command_timeout_s
            why = f"took longer than {limit_s:g} s" if output.timed_out else f"ended with exit code {code}"
            raise AgentFailed(f"the command {why}; its last words: {_text(output.stderr)[-300:].strip()!r}")
        if self._reward is None:
            return
        texts = _text(output.stdout), _text(output.stderr)
        outcome = Outcome(episode.task, code, output.timed_out, *texts, folder, tuple(episode.call_ids))
        episode.outcome = await self._reward_of(self._reward, outcome)

    async def _reward_of(self, function: RewardFunction, outcome: Outcome) -> float:
        """Raises AgentFailed when it takes too long, and whatever the function raises."""
        self._hanging = [thread for thread in self._hanging if thread.is_alive()]
        if len(self._hanging) >= HANGING_MAX:
            raise AgentFailed(f"the reward function is asked no more: {HANGING_MAX} calls of it never ended")
        limit_s, judge = self._settings.reward_timeout_s, _Judge(function, outcome)
        try:
            async with asyncio.timeout(limit_s) as limit:
                reward = await judge.answer
                return await reward if inspect.isawaitable(reward) else reward
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._hanging.append(judge.thread)
            raise AgentFailed(f"the reward function took longer than {limit_s:g} s (--reward-timeout-s)") from error


class _Judge:
    """One call of a reward function, in a thread of its own: one that hangs holds up no other, and no end of
    the process."""

    def __init__(self, function: RewardFunction, outcome: Outcome) -> None:
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[float | Awaitable[float]] = self._loop.create_future()
        self.thread = Thread(target=self._ask, args=(function, outcome), name="reward", daemon=True)
        self.thread.start()

    def _ask(self, function: RewardFunction, outcome: Outcome) -> None:
        try:
            reward = function(outcome)
        except BaseException as error:  # noqa: BLE001  # foreign code: whatever it raises is the episode's failure
            if isinstance(error, StopIteration) or not isinstance(error, Exception):
                error = AgentFailed(
                    f"the reward function raised {error!r}"
                )  # no future takes the one, no loop the other
            self._tell(self.answer.set_exception, error)
        else:
            self._tell(self.answer.set_result, reward)

    def _tell(self, settle: Callable[[Any], None], value: object) -> None:
        def settled() -> None:
            if not self.answer.done():
                settle(value)

        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(settled)


class _Output:
    """The output of a command so far, and its end."""

    def __init__(self) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()
        self.exit_code, self.timed_out = 0, False


async def _run(argv: Sequence[str], task: bytes, env: Mapping[str, str], folder: Path, limit_s: float) -> _Output:
    output = _Output()
    process = await asyncio.create_subprocess_exec(
        *dying_with_parent(reaped(argv), KILL_NOW),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=folder,
        env=env,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit_s):
            await asyncio.gather(
                _feed(process.stdin, task),
                _keep(process.stdout, output.stdout),
                _keep(process.stderr, output.stderr),
                process.wait(),
            )
    except TimeoutError:
        output.timed_out = True
    finally:
        await _end(process)
    output.exit_code = process.returncode or 0
    return output


async def _feed(stdin: asyncio.StreamWriter | None, task: bytes) -> None:
    assert stdin is not None, "a pipe"
    with suppress(BrokenPipeError, ConnectionResetError):  # a command need not read its task there
        stdin.write(task + b"\n")
        await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


async def _keep(stream: asyncio.StreamReader | None, kept: bytearray) -> None:
    assert stream is not None, "a pipe"
    while chunk := await stream.read(OUTPUT_BYTES_MAX):
        kept += chunk
        del kept[:-OUTPUT_BYTES_MAX]


async def _end(process: Process) -> None:
    """The whole process group, by its reaper; returns when the reaper has ended."""
    with suppress(ProcessLookupError):
        if process.returncode is None:
            process.send_signal(KILL_NOW)
    while process.returncode is None:  # noqa: ASYNC110  # `wait` also waits for whoever left the group with its output
        await asyncio.sleep(0.01)
    process._transport.close()  # type: ignore[attr-defined]  # its pipes, which a daemon may still hold


def _text(output: bytearray) -> str:
    return output.decode(errors="replace")


def _words(command: str) -> list[str]:
    """The command's words; those that name a file here do so from the command's own directory, too. Raises InvalidPlan."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidPlan(f"--command {command!r}: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise InvalidPlan(f"--command {command!r}: there is no program {words[0] if words else ''!r}")
    program = str(Path(words[0]).absolute()) if "/" in words[0] else words[0]
    return [program, *(str(Path(word).absolute()) if _is_file(word) else word for word in words[1:])]


def _is_file(word: str) -> bool:
    return os.path.isfile(word)  # noqa: PTH113  # `Path.is_file` raises for what is too long for a name


def _filled(word: str, task: JsonObject) -> str:
    """`{task}` is the task as JSON, `{task.field}` a field of it: a text as it is, anything else as JSON."""

    def value(match: re.Match[str]) -> str:
        part = task if match[1] is None else task[match[1]]
        return part if isinstance(part, str) else orjson.dumps(part).decode()

    return PLACEHOLDER.sub(value, word)


def inherited(environment: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Returns the part of the runner's environment that a command gets: no setting of ours and no secret, but those of
    these names.

    Raises InvalidPlan for a name that is not set.
    """
    if unset := [name for name in names if name not in environment]:
        raise InvalidPlan(f"--command-env {unset[0]}: there is no such variable")
    held_back = {name for name, value in environment.items() if _is_private(name, value)} - set(names)
    if held_back:
        log.info(
            "command_environment", held_back=sorted(held_back), why="settings and secrets; --command-env passes one"
        )
    return {name: value for name, value in environment.items() if name not in held_back}


def _is_private(name: str, value: str) -> bool:
    if name in FOLDERS:
        return False
    names_one = SECRET_PART.search(name) is not None or not SECRET_WORDS.isdisjoint(name.upper().split("_"))
    return names_one or URL_WITH_USER.search(value) is not None or name.startswith(OUR_SETTINGS)


def load_reward(name: str) -> RewardFunction:
    """The function that `module:function` or `file.py:function` names. Raises InvalidPlan."""
    where, _, function_name = name.rpartition(":")
    if not (where and function_name):
        raise InvalidPlan(f"--reward {name!r} is not module:function or file.py:function")
    try:
        function = getattr(module_named(where), function_name)
    except Exception as error:  # foreign code: whatever it raises, there is no reward
        raise InvalidPlan(f"--reward {name!r}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise InvalidPlan(f"--reward {name!r} is no function")
    reward: RewardFunction = function
    return reward

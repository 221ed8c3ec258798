"""Runs a model's code against tests in the sandbox: `use: sandbox:pytest`, `sandbox:python` or `sandbox:command`.

The code is taken from the last reply, the tests from the task, its metadata or a file. A failure of the code
is a verdict of 0; a failure to run the tests at all is no verdict.
"""

import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import orjson
from pydantic import Field, field_validator

from claw_r1.consumers.errors import ConsumerError
from claw_r1.consumers.rewards.functions.adapters import last_text
from claw_r1.consumers.rewards.judged import Judged, Scope
from claw_r1.consumers.rewards.kinds import Kind, ScorerSettings
from claw_r1.consumers.rewards.kinds.function import Bytes
from claw_r1.consumers.rewards.scorer import GaveUp, Opinion
from claw_r1.consumers.sandbox.grading import BrokenTests, CodeResult, by_cases, by_tests, ensure_pytest
from claw_r1.consumers.sandbox.sandbox import Sandbox, SandboxLimits, SandboxProgram, SandboxRefused

FORMS = ("pytest", "python", "command")
FENCE = re.compile(r"^[ \t]*```([^\n`]*)$", re.MULTILINE)
"""A line that opens a block; it closes one where nothing follows the marks."""
PYTHON_BLOCK = re.compile(r"\{?\.?(python|py)[\d.]*\b", re.IGNORECASE)
"""The first line of a Python block."""
MARK = re.compile(
    r"""(?P<alone>^[ \t]*</think>[ \t]*$)|['"]</think>|</think>['"]|(?P<within></think>)|^[ \t]*```(?P<fence>[^\n`]*)$""",
    re.MULTILINE,
)
"""A fence, or the end of thoughts: on a line alone, quoted, or other."""
PYTHON = "python"


class SandboxSettings(ScorerSettings):
    """The settings of a scorer that runs code."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("call", "next", "trajectory")
    INCIDENTAL: ClassVar[frozenset[str]] = ScorerSettings.INCIDENTAL | {"parallel", "readable"}

    tests: str = "task.tests"
    """The source of the tests: a field of `task` or `metadata`, with dots, else a file."""
    code: Literal["block", "reply"] = "block"
    """The last fenced block of the last reply, or the reply as it is."""
    score: Literal["all", "share"] = "all"
    """1 where all tests passed, else 0; or the share that passed."""
    command: tuple[str, ...] = (PYTHON, "main.py")
    """For `sandbox:command`: the program, which reads a case's input and prints its output. `python` is ours."""
    file: str = "main.py"
    """For `sandbox:command`: under which name it has the code."""
    parallel: int = Field(default=1, ge=1, le=64)
    """The number of sandboxes side by side."""
    cpu_s: float = Field(default=10.0, gt=0)
    """The CPU seconds of each process in the sandbox."""
    memory: Bytes = Field(default=512 << 20, ge=32 << 20)
    """The memory of all processes of the code together: bytes, or with K, M, G."""
    processes: int = Field(default=32, ge=1, le=1024)
    """The most processes of the code, threads included."""
    files: Bytes = Field(default=64 << 20, ge=1 << 20)
    """The most bytes of all files that it writes."""
    output: Bytes = Field(default=1 << 20, ge=1 << 10)
    """The most bytes of stdout and stderr, each."""
    network: Literal[False] = False
    """There is none."""
    readable: tuple[str, ...] = ()
    """Folders of this machine that the code may read, beside the system's and Python's."""

    @field_validator("use")
    @classmethod
    def _form(cls, use: str) -> str:
        if use.partition(":")[2] not in FORMS:
            raise ValueError(f"{use} is none of " + ", ".join(f"sandbox:{form}" for form in FORMS))
        return use

    @property
    def limits(self) -> SandboxLimits:
        """For the sandbox."""
        return SandboxLimits(
            cpu_s=self.cpu_s,
            wall_s=self.timeout_s,
            memory_bytes=self.memory,
            processes=self.processes,
            files_bytes=self.files,
            output_bytes=self.output,
        )


class SandboxScorer:
    """`RewardScorer`: one sandbox per thread."""

    def __init__(self, settings: SandboxSettings) -> None:
        """Raises ConsumerError, in one line, where no sandbox can be had, or the file of tests cannot be read."""
        self._settings = settings
        self._python = settings.use != "sandbox:command" or settings.file.endswith(".py")
        self._field = re.fullmatch(r"(task|metadata)(?:\.(.+))?", settings.tests)
        try:
            self._text = None if self._field else Path(settings.tests).read_text()
            self._sandboxes = [_opened(settings)]
        except (OSError, UnicodeDecodeError) as error:
            raise ConsumerError(f"{settings.slot}: the tests {settings.tests}: {error}") from error
        except SandboxRefused as error:
            raise ConsumerError(f"{settings.slot}: {error}") from error
        self._spare = [*self._sandboxes]
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(settings.parallel, thread_name_prefix="sandbox")
        self._own = threading.local()
        self._closed = threading.Event()

    def judge(self, subjects: Sequence[Judged]) -> Sequence["Future[Opinion]"]:
        """See `RewardScorer`."""
        return [self._threads.submit(self._opinion, judged) for judged in subjects]

    def close(self) -> None:
        """Ends the sandboxes with what runs in them."""
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            sandboxes, self._sandboxes = self._sandboxes, []
        for sandbox in sandboxes:
            sandbox.abort()
        self._threads.shutdown(wait=True)
        for sandbox in sandboxes:
            sandbox.close()

    def _opinion(self, judged: Judged) -> Opinion:
        if not judged.calls or judged.calls[-1].reply is None:
            raise GaveUp("no_text", "the last reply has no text")
        tests = self._tests(judged)
        code = code_of(last_text(judged), self._settings.code, python=self._python)
        if code is None:
            return Opinion(values=(0.0,), detail="the reply has no fenced block of code")
        for last_try in (False, True):
            try:
                return self._scored(self._run(code, tests))
            except BrokenTests as error:
                raise GaveUp("tests_broken", str(error)) from error
            except SandboxRefused as error:  # its keeper was killed, or the machine is short of something
                if self._closed.is_set():
                    raise CancelledError("the scorer was closed") from error
                if last_try:
                    raise GaveUp("sandbox", str(error)) from error
        raise AssertionError("the last try returns or raises")

    def _scored(self, tested: CodeResult) -> Opinion:
        whole = bool(tested.tests) and tested.passed == tested.tests and not tested.reason
        share = tested.passed / tested.tests if tested.tests else 0.0
        value = share if self._settings.score == "share" else float(whole)
        words = (f"{tested.passed} of {tested.tests} passed", tested.reason, tested.detail)
        return Opinion(values=(value,), detail="; ".join(filter(None, words)))

    def _run(self, code: str, tests: Any) -> CodeResult:
        settings, sandbox = self._settings, self._sandbox()
        form = settings.use.partition(":")[2]
        if form != "command":
            return by_tests(
                sandbox, "pytest" if form == "pytest" else "python", code, script_of(tests), settings.limits
            )
        argv = [sys.executable if word == PYTHON else word for word in settings.command]
        files = {settings.file: code.encode("utf-8", "replace")}
        program = SandboxProgram(argv=argv, files=files, limits=settings.limits)
        return by_cases(sandbox, program, cases_of(tests), timeout_s=settings.timeout_s)

    def _sandbox(self) -> Sandbox:
        """This thread's."""
        if not hasattr(self._own, "sandbox"):
            with self._lock:
                sandbox = self._spare.pop() if self._spare else None
            if sandbox is None:
                sandbox = Sandbox(readable=self._settings.readable)
                with self._lock:
                    self._sandboxes.append(sandbox)
                    if self._closed.is_set():  # while this one was made: nobody else would close it
                        sandbox.close()
                        raise CancelledError("the scorer was closed")
            self._own.sandbox = sandbox
        own: Sandbox = self._own.sandbox
        return own

    def _tests(self, judged: Judged) -> Any:
        """Raises GaveUp where the task has none."""
        if self._field is None:
            return self._text
        value = judged.task if self._field[1] == "task" else judged.metadata
        for name in (self._field[2] or "").split(".") if self._field[2] else ():
            value = value.get(name) if isinstance(value, Mapping) else None
        if not value:
            raise GaveUp("no_tests", f"the subject has no {self._settings.tests}")
        return value


def _opened(settings: SandboxSettings) -> Sandbox:
    """The first sandbox, which could run the tests. Raises SandboxRefused."""
    sandbox = Sandbox(readable=settings.readable)
    try:
        if settings.use == "sandbox:pytest":
            ensure_pytest(sandbox)
    except SandboxRefused:
        sandbox.close()
        raise
    return sandbox


class FencedBlock(NamedTuple):
    """The text between two fences."""

    language: str
    begin: int
    end: int


def code_of(text: str, form: str, *, python: bool = True) -> str | None:
    """The code of a reply without its reasoning; None where there is no fenced block.

    python: the last block marked so is taken, if there is one.
    """
    text = text[end_of_thoughts(text) :]
    if form == "reply":
        return text
    blocks = list(blocks_of(text))
    named = [block for block in blocks if PYTHON_BLOCK.match(block.language)] if python else []
    last = (named or blocks)[-1:]
    return text[last[0].begin : last[0].end] if last else None


def blocks_of(text: str) -> Iterator[FencedBlock]:
    """Line by line, and by no pattern of a whole block: one that never closes takes that quadratic time."""
    begin, language = None, ""
    for fence in FENCE.finditer(text):
        if begin is None:
            begin, language = fence.end() + 1, fence[1].strip()
        elif not fence[1].strip(" \t"):
            yield FencedBlock(language, begin, fence.start())
            begin = None


def end_of_thoughts(text: str) -> int:
    """Behind the first `</think>` that is none of the code's: between quotes, or within a line of a block that closes."""
    inside, in_block = False, 0
    for mark in MARK.finditer(text):
        if mark["fence"] is None:
            if mark["alone"] is not None or (mark["within"] and not inside):
                return mark.end()
            in_block = in_block or (mark.end() if mark["within"] else 0)
        elif inside and mark["fence"].strip(" \t"):  # the next block: this one never closed
            if in_block:
                break
        else:
            inside, in_block = not inside, 0
    return in_block


def script_of(tests: Any) -> str:
    """Tests as a text, or as a list of lines. Raises GaveUp for anything else."""
    if isinstance(tests, list) and all(isinstance(line, str) for line in tests):
        return "\n".join(tests) + "\n"
    if isinstance(tests, str):
        return tests
    raise GaveUp("tests_broken", f"tests are a text or a list of lines, not {type(tests).__name__}")


def cases_of(tests: Any) -> list[tuple[str, str]]:
    """`[{input, output}, …]` or `{inputs: […], outputs: […]}`, also as JSON in a text. Raises GaveUp for anything else."""
    try:
        data = orjson.loads(tests) if isinstance(tests, str) else tests
        if isinstance(data, Mapping):
            pairs = list(zip(data["inputs"], data["outputs"], strict=True))
        else:
            pairs = [(case["input"], case["output"]) for case in data]
    except (ValueError, KeyError, TypeError) as error:
        raise GaveUp("tests_broken", f"cases are a list of input and output: {error!r:.200}") from error
    if not pairs or not all(isinstance(text, str) for pair in pairs for text in pair):
        raise GaveUp("tests_broken", "cases are a list of texts `input` and `output`, and there is at least one")
    return pairs


KIND = Kind(SandboxSettings, SandboxScorer)

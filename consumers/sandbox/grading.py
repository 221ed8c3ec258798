"""Code against its tests: how many it passed, where the code could write none of it.

Invariant: the code runs in one sandbox, the tests in another; they share a socket on which the code can answer
questions. Counts come from the tests' process, in which no code of a model runs; stdout of the code is an answer only
where the tests are its expected outputs.
"""

import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from claw_r1.consumers.sandbox.sandbox import Sandbox, SandboxLimits, SandboxOutcome, SandboxProgram, SandboxRefused

PACKAGE = "claw_r1.consumers.sandbox.rpc"
RPC = Path(__file__).parent / "rpc"
WIRE, RUNNER = ("wire.py", "serialization.py"), ("runner.py", "client.py", "proxies.py", "mock.py")
ADDRESS = re.compile(r"0x[0-9a-f]+")
TESTS_FILE, MODULE = "test_solution.py", "solution"
DETAIL_BYTES = 400
BROKEN_WORDS = frozenset({"unreadable", "no_fixture", "not_handable"})
CODES_FAULT = frozenset({"cpu", "memory", "processes", "output", "wall"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeResult:
    """The result of testing code."""

    passed: int
    tests: int
    """0: they were not reached."""
    reason: str = ""
    """The reason why not all passed: `failed`, `broken` (the code does not load), or the
    limit that the code broke."""
    detail: str = ""


class BrokenTests(Exception):
    """The tests cannot be run, whatever the code is; one line."""


def by_tests(
    sandbox: Sandbox, kind: Literal["pytest", "python"], code: str, tests: str, limits: SandboxLimits
) -> CodeResult:
    """Code in a module `solution` against pytest's tests, or a script that has its names. Raises BrokenTests, SandboxRefused."""
    server = SandboxProgram(
        argv=[sys.executable, "-s", "-m", f"{PACKAGE}.server", MODULE],
        files={**_files("server.py", *WIRE), f"{MODULE}.py": code.encode("utf-8", "replace")},
        limits=limits,
    )
    program = SandboxProgram(
        argv=[sys.executable, "-s", "-m", f"{PACKAGE}.runner", kind, MODULE, TESTS_FILE],
        files={**_files(*RUNNER, *WIRE), TESTS_FILE: tests.encode("utf-8", "replace")},
        environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        limits=limits,
        reports=True,
    )
    outcome, judgement = sandbox.run_joined(server, program)
    result = counted(outcome, judgement)
    if isinstance(result, CodeResult):
        return result
    alone = sandbox.run(replace(program, argv=[*program.argv, "alone"]))
    if result.is_like(stop_of(alone)):
        raise BrokenTests(f"the tests do not run: {result.words}")
    return CodeResult(passed=0, tests=result.collected, reason="failed", detail=f"the tests stopped at: {result.words}")


def ensure_pytest(sandbox: Sandbox) -> None:
    """Raises SandboxRefused where the interpreter that runs the tests has no pytest within the sandbox."""
    outcome = sandbox.run(SandboxProgram(argv=[sys.executable, "-s", "-c", "import pytest"]))
    if outcome.exit_code != 0:
        words = last_words_of(outcome) or outcome.reason
        raise SandboxRefused(f"no pytest in the sandbox (pip install 'claw-r1[consumers]' brings it): {words}")


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """The tests did not reach their end, so some code is to blame."""

    place: tuple[int, str, str] | None
    """Line, kind and text of the error; None: no error, or none reported."""
    collected: int
    code_used: bool
    """The code had more to do than to be there."""
    by_answers: bool
    """Without code, other results of its stand-in could have kept the tests from stopping."""
    words: str

    def is_like(self, alone: "EarlyStop") -> bool:
        """Returns whether the stop also occurs without any code. A stop without a line may have been caused by code
        that was called."""
        if self.place != alone.place or alone.by_answers or (alone.collected and alone.place is None):
            return False
        return self.place is not None or not self.code_used


def stop_of(tests: SandboxOutcome) -> EarlyStop:
    """Returns the stop that the tests' process reported."""
    values = dict(reversed(reports_of(tests)))  # the first of each counts
    place = values.get("stopped")
    words = f"{place[1]}: {place[2]}" if place else last_words_of(tests)
    same = (place[0], place[1], ADDRESS.sub("", place[2])) if place else None
    by_answers = "by_answers" in values
    return EarlyStop(same, values.get("tests", 0), values.get("asked", True), by_answers, words)


def reports_of(tests: SandboxOutcome) -> list[tuple[str, Any]]:
    """Words and values, in their order."""
    return [tuple(json.loads(line)) for line in tests.report.split(b"\n")[:-1]]


def last_words_of(tests: SandboxOutcome) -> str:
    """Returns the last part of the output."""
    return " ".join((tests.stdout + b" " + tests.stderr)[-DETAIL_BYTES:].decode("utf-8", "replace").split())


def counted(code: SandboxOutcome, tests: SandboxOutcome) -> CodeResult | EarlyStop:
    """The verdict of two outcomes. Raises BrokenTests where the code had no part in it."""
    lines = reports_of(tests)
    values = dict(lines)
    fault = next((one.reason for one in (code, tests) if one.reason in CODES_FAULT), "")
    if "broken" in values:
        words = f"the code did not load: {values['broken']}"
        return CodeResult(passed=0, tests=0, reason=fault or "broken", detail=words)
    ends = {word: {name for each, name in lines if each == word} for word in ("passed", "failed", "skipped")}
    passed = len(ends["passed"] - ends["failed"] - ends["skipped"])
    total = values.get("tests", 0)
    if fault:
        return CodeResult(passed=passed, tests=total, reason=fault, detail=f"it broke the limit of {fault}")
    if not BROKEN_WORDS.isdisjoint(values):
        words = values.get("no_fixture") or values.get("not_handable") or last_words_of(tests)
        raise BrokenTests(f"the tests do not run: {words}")
    if not total or values.get("finished") not in (0, 1) or "stopped" in values:
        return stop_of(tests)
    if tests.exit_code == 0 and values["finished"] == 0 and passed == total:
        return CodeResult(passed=passed, tests=total)
    return CodeResult(passed=min(passed, total), tests=total, reason="failed", detail=last_words_of(tests))


def by_cases(
    sandbox: Sandbox, program: SandboxProgram, cases: Sequence[tuple[str, str]], *, timeout_s: float
) -> CodeResult:
    """A program that reads stdin and writes stdout, against (input, output) each. Space at line ends does not count.

    Cases that are not reached within `timeout_s` count as not passed. Raises SandboxRefused.
    """
    passed, failures, deadline_s = 0, [], time.monotonic() + timeout_s
    for number, (stdin, output) in enumerate(cases):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            failures.append(("wall", f"case {number} was not reached within {timeout_s:g} s"))
            break
        limits = replace(program.limits, wall_s=min(program.limits.wall_s, left_s))
        end = sandbox.run(replace(program, stdin=stdin.encode("utf-8", "replace"), limits=limits))
        ended = end.reason == "ended"
        if ended and end.exit_code == 0 and lines_of(end.stdout.decode("utf-8", "replace")) == lines_of(output):
            passed += 1
            continue
        words = end.stderr[-DETAIL_BYTES:].decode("utf-8", "replace").split() if end.exit_code else ()
        reason = "failed" if ended else end.reason
        failures.append((reason, " ".join((f"case {number}: {reason}", *words))))
    reason, detail = failures[0] if failures else ("", "")
    return CodeResult(passed=passed, tests=len(cases), reason=reason, detail=detail)


def lines_of(text: str) -> list[str]:
    """For comparing: without space at the ends of lines and empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _files(*names: str) -> dict[str, bytes]:
    return {f"{PACKAGE.replace('.', '/')}/{name}": (RPC / name).read_bytes() for name in names}

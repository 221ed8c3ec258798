"""The share of right code that keeps its point: reference solutions in plain Python and in the sandbox, side by side.

A file has a task per line of JSON: `{"id", "code", "tests"}` with an optional `"use"` (`pytest`; else `python`: a text, or a list of
lines), or a line of HumanEval's (`prompt`, `canonical_solution`, `test`, `entry_point`) or of MBPP's (`code`, `test_list`,
`test_setup_code`, `challenge_test_list`) as they are published; `.gz` is read, too. Only those count that pass in plain Python.
"""

import gzip
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from claw_r1.consumers.sandbox.sandbox import Sandbox, SandboxLimits, SandboxProgram
from claw_r1.consumers.sandbox.tested import BrokenTests, by_tests

LIMITS = SandboxLimits(cpu_s=20, wall_s=60)
PLAIN = {
    "pytest": ["-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", "test_solution.py"],
    "python": ["-s", "main.py"],
}


class Task(NamedTuple):
    """A reference solution and its tests."""

    id: str
    use: str
    code: str
    tests: str


def task(line: dict[str, Any]) -> Task:
    """Returns the task of a line of one of the three shapes."""
    if "canonical_solution" in line:
        code = line["prompt"] + line["canonical_solution"]
        return Task(line["task_id"], "python", code, f"{line['test']}\ncheck({line['entry_point']})\n")
    if "test_list" in line:
        tests = [line.get("test_setup_code", ""), *line["test_list"], *line.get("challenge_test_list", ())]
        return Task(f"MBPP/{line['task_id']}", "python", line["code"], "\n".join(tests) + "\n")
    tests = line["tests"] if isinstance(line["tests"], str) else "\n".join(line["tests"])
    return Task(str(line["id"]), line.get("use", "python"), line["code"], tests)


def read(paths: Sequence[Path]) -> Iterator[Task]:
    """All tasks of the files."""
    for path in paths:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        yield from (task(json.loads(line)) for line in data.splitlines() if line.strip())


def passes_plainly(sandbox: Sandbox, one: Task) -> bool:
    """In one process, as anybody would run it; in a sandbox because the code is a stranger's."""
    files = {"solution.py": one.code, "test_solution.py": one.tests, "main.py": f"{one.code}\n\n{one.tests}"}
    program = SandboxProgram(
        argv=[sys.executable, *PLAIN[one.use]],
        files={name: text.encode() for name, text in files.items()},
        environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        limits=LIMITS,
    )
    return sandbox.run(program).exit_code == 0


def why_it_fails(sandbox: Sandbox, one: Task) -> str:
    """Empty: it passes with its tests in another process."""
    try:
        result = by_tests(sandbox, "pytest" if one.use == "pytest" else "python", one.code, one.tests, LIMITS)
    except BrokenTests as error:
        return str(error)
    return (
        "" if result.tests and result.passed == result.tests and not result.reason else result.detail or result.reason
    )


def shared(paths: Sequence[Path]) -> dict[str, Any]:
    """Figures, and who lost its point, with the last words."""
    tasks = list(read(paths))
    workers = os.cpu_count() or 1
    sandboxes = [Sandbox() for _ in range(workers)]

    def judged(number: int) -> list[tuple[str, str]]:
        sandbox = sandboxes[number]
        right = (one for one in tasks[number::workers] if passes_plainly(sandbox, one))
        return [(one.id, why_it_fails(sandbox, one)) for one in right]

    with ThreadPoolExecutor(workers) as threads:
        ends = sorted(end for part in threads.map(judged, range(workers)) for end in part)
    for sandbox in sandboxes:
        sandbox.close()
    lost = {name: words for name, words in ends if words}
    share = (len(ends) - len(lost)) / len(ends) if ends else 0.0
    return {"tasks": len(tasks), "right_tasks": len(ends), "right_code_share": round(share, 5), "lost": lost}

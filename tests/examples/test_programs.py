import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.evaluate import evaluate
from claw_r1.agentflow.settings import EvaluationPlan
from examples.programs.flow import ProgramsFlow
from examples.programs.rules import Exercise, first_fault, source_of
from examples.programs.runner import ProgramLimits, ProgramOutput, run_program
from tests.agentflow.fake_gateway import FakeGateway

CONFINED, OPEN = ProgramLimits(), ProgramLimits(confined=False)


def returned(source: str, limits: ProgramLimits = CONFINED, argument: object = 1) -> ProgramOutput:
    return run_program(source, [[argument]], limits)[0]


@given(st.integers(0, 2**63 - 1))
def test_an_exercise_is_a_function_of_its_seed(seed: int) -> None:
    """The same seed gives the same words, examples and tests, all of them JSON; what is right passes."""
    exercise = Exercise.from_seed(seed)
    assert exercise == Exercise.from_seed(seed)
    cases = (*exercise.examples, *exercise.tests)
    assert json.loads(json.dumps(cases)) == [list(case) for case in cases]
    assert first_fault(cases, [value for _, value in cases], [None] * len(cases)) is None
    assert first_fault(cases, [None] * len(cases), [None] * len(cases)) is not None


def test_a_program_returns_json_and_errors_stay_with_their_input() -> None:
    """One output per input, in order; an exception of one leaves the next alone; what it prints does no harm."""
    source = "import math\ndef solve(n):\n    print('hello')\n    return [math.factorial(4) // n]"
    assert run_program(source, [[2], [0], [3]], CONFINED) == [
        ProgramOutput([12]),
        ProgramOutput(error="ZeroDivisionError: integer division or modulo by zero"),
        ProgramOutput([8]),
    ]
    assert returned("def solve(") == ProgramOutput(error="SyntaxError: '(' was never closed (program, line 1)")
    assert returned("x = 1").error == "KeyError: 'solve'"
    assert returned("def solve(n): return {n}").error == "TypeError: Object of type set is not JSON serializable"


@pytest.mark.parametrize(
    "source",
    [
        "def solve(n):\n    while True: pass",
        "import itertools\ndef solve(n): return sum(1 for _ in itertools.count())",
        "def solve(n): return 9 ** 9 ** 9",
        "def solve(n): return 'x' * 10**10",
        "def solve(n):\n    a = []\n    while True: a.append(bytearray(1 << 20))",
        "def solve(n): return 'x' * 10**7",
        "def solve(n):\n    def f(): return f()\n    return f()",
        "import ctypes\ndef solve(n): return ctypes.string_at(0)",
        "def solve(n): raise SystemExit(0)",
        "import os\ndef solve(n): os._exit(0)",
        "import os\nos._exit(3)",
        "import os\nos.lseek(1, 0, 0)\nos.write(1, b' ' * 9)\nos._exit(3)",
        "import os\ndef solve(n): os.write(1, b'[1]\\n[2]\\nnull\\n' * 10**5)",
        "import _thread\ndef solve(n):\n    lock = _thread.allocate_lock()\n    lock.acquire(); lock.acquire()",
    ],
)
def test_no_program_outlasts_its_limits(source: str) -> None:
    """Endless loops, eaters of memory, floods of output, crashes and sleepers end with an error."""
    assert returned(source, ProgramLimits(cpu_s=1, wall_s=2.0)).error


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server on loopback that nobody should reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


def reached(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("limits", [CONFINED, OPEN], ids=["confined", "open"])
def test_the_network_is_out_of_reach(listener: socket.socket, limits: ProgramLimits) -> None:
    """Not even a socket can be made by the system call itself; the same program does reach out where nothing confines it."""
    source = """
import ctypes, struct
def solve(port):
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.socket(2, 1, 0)
    address = struct.pack("=H", 2) + struct.pack(">H", port) + bytes([127, 0, 0, 1]) + bytes(8)
    libc.connect(fd, address, 16)
    return [fd >= 0, ctypes.get_errno()]
"""
    output = returned(source, limits, listener.getsockname()[1])
    assert reached(listener) is (limits is OPEN)
    assert limits is OPEN or output.value == [False, 1], output


@pytest.mark.parametrize("limits", [CONFINED, OPEN], ids=["confined", "open"])
def test_no_file_is_written(tmp_path: Path, limits: ProgramLimits) -> None:
    """A file cannot be opened at all; unconfined it can, and is cut at the limit."""
    big = tmp_path / "big"
    source = "def solve(path):\n    with open(path, 'wb') as out: out.write(bytes(10**8))"
    error = returned(source, limits, str(big)).error
    if limits is CONFINED:
        assert error == f"PermissionError: [Errno 1] Operation not permitted: '{big}'"
    assert big.exists() is (limits is OPEN)
    assert limits is CONFINED or big.stat().st_size <= OPEN.output_bytes


@pytest.mark.parametrize("limits", [CONFINED, OPEN], ids=["confined", "open"])
def test_no_process_is_started_and_none_stays(limits: ProgramLimits) -> None:
    """A fork bomb fails at its first fork; unconfined (three children that sleep) its whole group is gone afterwards."""
    source = """
import os, time
def solve(mark):
    pids = []
    for _ in range(3):
        pid = os.fork()
        if not pid: time.sleep(100)
        pids.append(pid)
    return pids
"""
    bomb = "import os\ndef solve(n):\n    while True: os.fork()"
    if limits is CONFINED:
        assert returned(bomb).error == "PermissionError: [Errno 1] Operation not permitted"
        return
    pids = returned(source, limits).value
    assert isinstance(pids, list)
    assert len(pids) == 3
    deadline = time.monotonic() + 10
    while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_nobody_else_is_touched(tmp_path: Path) -> None:
    """No signal reaches the runner, no file of the machine is read, no module is loaded later, the environment is empty."""
    assert returned("import os\ndef solve(n): os.kill(os.getpid() - 1, 9)").error.startswith("PermissionError")  # type: ignore[union-attr]  # the kind that this test makes has it
    assert returned("def solve(n): return open('/proc/self/status').read()").error.startswith("PermissionError")  # type: ignore[union-attr]  # the kind that this test makes has it
    assert returned("import socket\ndef solve(n): return 1").error == "ModuleNotFoundError: No module named 'socket'"
    assert returned("import os\ndef solve(n): return dict(os.environ)", OPEN).value.keys() <= {"LC_CTYPE"}  # type: ignore[union-attr]  # the kind that this test makes has it


@pytest.mark.process
def test_a_machine_without_the_filter_refuses() -> None:
    """Where the kernel speaks of another machine than x86-64: one line, exit 2, nothing played; with the variable it goes on."""
    elsewhere = "import ctypes, os, sys; ctypes.CDLL(None).personality(8); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    flags = ["--flow", "examples.programs.flow:ProgramsFlow", "--gateway", "http://127.0.0.1:1", "--episodes", "1"]
    command = [sys.executable, "-c", elsewhere, "-m", "claw_r1.agentflow", "eval", *flags]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "CLAW_PROGRAMS_UNCONFINED=1" in refused.stderr
    environment = {**os.environ, "CLAW_PROGRAMS_UNCONFINED": "1", "CLAW_AGENTFLOW_RETRY_BUDGET_S": "0"}
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "no answer from http://127.0.0.1:1" in told.stderr + told.stdout


async def test_the_flow_tells_what_failed_and_hidden_tests_judge() -> None:
    """Mended on the second attempt, a program earns 1; one that only knows the examples passes them and earns 0."""

    def model(messages: list[dict[str, str]]) -> str:
        first = messages[1]["content"]
        if len(messages) == 2:
            return "def solve(values): return None"
        if divisor := re.search(r"divisible by (\d)", first):
            return f"So:\n```python\ndef solve(values): return sum(x for x in values if x % {divisor[1]} == 0)\n```"
        pairs = [line.removeprefix("solve").split(" == ") for line in first.splitlines()[1:]]
        table = ", ".join(f"({values}, {value})" for values, value in pairs)
        return f"def solve(values): return next(right for shown, right in [{table}] if shown == values)"

    async with FakeGateway(model) as fake, GatewayClient(fake.url) as client:
        result = await evaluate(ProgramsFlow(), client, EvaluationPlan(episodes=16))
    earned = {episode.reward: "divisible" in episode.transcript[1]["content"] for episode in result.episodes}
    assert earned == {1.0: True, 0.0: False}
    assert {episode.calls for episode in result.episodes} == {2}
    assert all("should be" in episode.transcript[3]["content"] for episode in result.episodes)


def test_the_last_fence_is_the_program() -> None:
    """Text around fences is dropped; without one all of it is the program."""
    assert source_of("first\n```python\na = 1\n```\nthen\n```\nb = 2\n```\nend") == "b = 2\n"
    assert source_of("c = 3") == "c = 3"

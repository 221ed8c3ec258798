"""No process outlives its keeper, whoever dies first."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # a test helper without stubs
import pytest

ROOT = Path(__file__).parents[3]
# A command with a child of its own that ignores SIGTERM, like an engine that hangs. It prints both pids.
STUBBORN = (
    "import os, signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "print(os.getpid(), child.pid, flush=True); time.sleep(60)"
)
# Starts a keeper and tells its pid, then waits: the supervisor's part.
PARENT = (
    "import os, subprocess, sys, time\n"
    "keeper = subprocess.Popen([sys.executable, '-m', 'schemas.runtime.reaper', str(os.getpid()), sys.executable, '-c', sys.argv[1]])\n"
    "print(keeper.pid, flush=True); time.sleep(60)"
)


def start(code: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """The parent, and the processes [keeper, command, grandchild]."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    pids = f"{parent.stdout.readline()} {parent.stdout.readline()}".split()
    return parent, [psutil.Process(int(pid)) for pid in pids]


def until(condition: Callable[[], bool], seconds: float) -> None:
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, "condition not met in time"
        time.sleep(0.02)


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("victim", ["parent", "keeper", "command"])
def test_a_kill_of_one_takes_everything_below(victim: str) -> None:
    """kill -9 of the parent or the command takes all; of the keeper, at least the command (vLLM's plugin adds the engine)."""
    parent, (keeper, command, grandchild) = start(STUBBORN)
    pid = {"parent": parent.pid, "keeper": keeper.pid, "command": command.pid}[victim]
    os.kill(pid, signal.SIGKILL)
    expected = [keeper, command] if victim == "keeper" else [keeper, command, grandchild]
    try:
        until(lambda: all(gone(p) for p in expected), 5)
    finally:
        if not gone(grandchild):
            grandchild.kill()
        parent.kill()
        parent.communicate()


def test_sigterm_is_passed_on_and_the_exit_code_comes_back() -> None:
    """A command that stops politely is stopped politely, and what it leaves behind is killed."""
    code = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(os.getpid(), child.pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-m", "schemas.runtime.reaper", str(os.getpid()), sys.executable, "-c", code]
    keeper = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert keeper.stdout is not None
    left = psutil.Process(int(keeper.stdout.readline().split()[1]))
    keeper.terminate()
    assert keeper.wait(timeout=10) == 7
    until(lambda: gone(left), 5)
    keeper.communicate()


def test_a_keeper_that_starts_too_late_ends_at_once() -> None:
    """When the parent is gone before the keeper could ask the kernel to watch it, nothing is started."""
    command = [
        sys.executable,
        "-m",
        "schemas.runtime.reaper",
        "1" if os.getpid() != 1 else "2",
        sys.executable,
        "-c",
        "print('ran')",
    ]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=20, check=False)
    assert ran.stdout == ""
    assert ran.returncode != 0

"""No process outlives its reaper, whoever dies first."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # a test helper without stubs
import pytest

from claw_r1.runtime.processes import child
from claw_r1.runtime.processes.reaper import KILL_NOW, reaped
from tests.children import is_gone
from tests.patience import until

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.process
# A command with a child of its own that ignores SIGTERM, like an engine that hangs. It prints both pids.
STUBBORN = (
    "import os, signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "print(os.getpid(), child.pid, flush=True); time.sleep(60)"
)
# Starts a reaper and tells its pid, then waits: the supervisor's part.
PARENT = (
    "import sys, time\n"
    "from claw_r1.runtime.processes.child import start\nfrom claw_r1.runtime.processes.reaper import KILL_NOW, reaped\n"
    "reaper = start(reaped([sys.executable, '-c', sys.argv[1]]), death_signal=KILL_NOW)\n"
    "print(reaper.pid, flush=True); time.sleep(60)"
)


def start(code: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """The parent, and the processes [reaper, command, grandchild]."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    pids = f"{parent.stdout.readline()} {parent.stdout.readline()}".split()
    return parent, [psutil.Process(int(pid)) for pid in pids]


@pytest.mark.parametrize("victim", ["parent", "reaper", "command"])
def test_a_kill_of_one_takes_everything_below(victim: str) -> None:
    """kill -9 of the parent or the command takes all; of the reaper, at least the command (vLLM's plugin adds the engine)."""
    parent, (reaper, command, grandchild) = start(STUBBORN)
    pid = {"parent": parent.pid, "reaper": reaper.pid, "command": command.pid}[victim]
    os.kill(pid, signal.SIGKILL)
    expected = [reaper, command] if victim == "reaper" else [reaper, command, grandchild]
    try:
        until(lambda: all(is_gone(p) for p in expected))
    finally:
        if not is_gone(grandchild):
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
    command = reaped([sys.executable, "-c", code])
    reaper = child.start(command, death_signal=KILL_NOW, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert reaper.stdout is not None
    left = psutil.Process(int(reaper.stdout.readline().split()[1]))
    reaper.terminate()
    assert reaper.wait(timeout=10) == 7
    until(lambda: is_gone(left))
    reaper.communicate()

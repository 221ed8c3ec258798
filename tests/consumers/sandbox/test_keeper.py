"""What the keeper says of an end that it heard of late, and what a start that failed leaves behind: nothing."""

import marshal
import os
import resource
import signal
import sys
from pathlib import Path

import psutil
import pytest

from claw_r1.consumers.sandbox.keeper import Running, settle
from claw_r1.consumers.sandbox.sandbox import Sandbox, SandboxProgram, SandboxRefused
from tests import children
from tests.patience import until

BURN = "import time\nwhile time.process_time() < 1.05: pass"


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [("", ("ended", int(signal.SIGXCPU)), "cpu"), (BURN, None, "cpu"), ("", None, "over")],
    ids=["by the signal", "killed before its end was told", "nothing spent"],
)
def test_code_that_spent_its_time_did_so_though_the_tests_ended_first(code, status, reason) -> None:
    """Its tests end with it, and the keeper may hear of them first and kill the rest as over."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})
    one = Running({"cpu_s": 1}, pid, {})
    one.reason = "over"
    if status:
        one.data["status"] += marshal.dumps(status)
    assert one.outcome()["reason"] == reason


@pytest.mark.parametrize(("command", "reason"), [("true & exec sleep 60", ""), ("sleep 60", "over")])
def test_code_that_ends_by_itself_is_not_killed_as_over(command: str, reason: str) -> None:
    """Its files are closed before its status is told, so its tests may end first; code that goes on is killed with them."""
    process = children.start(["sh", "-c", f"{command}; true"])
    try:
        below = psutil.Process(process.pid)
        until(lambda: [each for each in below.children() if each.status() == psutil.STATUS_ZOMBIE or reason])
        code, tests = Running({}, process.pid, {3: "status"}), Running({}, process.pid, {4: "stdout"})
        settle([code, tests], late=False, idle=False)
        assert code.reason == reason
        assert (process.poll() is None) == (not reason) or until(lambda: process.poll() is not None)
    finally:
        children.end(process, 0)


TRUE = SandboxProgram(argv=["true"])


def descriptors(pid: int) -> list[int]:
    return sorted(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir())


def test_a_start_that_fails_leaves_nothing_behind(sandbox: Sandbox) -> None:
    """Wherever the kernel refuses it, for one program and for the second of two; then the keeper serves on."""
    pid = sandbox._process.pid
    before, usual = descriptors(pid), resource.prlimit(pid, resource.RLIMIT_NOFILE)
    refusals = 0
    for limit in range(3, 30):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, usual[1]))
        for begin in (lambda: sandbox.run(TRUE), lambda: sandbox.run_joined(TRUE, TRUE)):
            try:
                begin()
            except SandboxRefused as refusal:
                refusals += "Too many open files" in str(refusal)
            assert descriptors(pid) == before, limit
            assert psutil.Process(pid).children() == []
    resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
    assert refusals >= 11 + 17, "as many descriptors as one start takes, and as two do"
    code, tests = sandbox.run_joined(TRUE, TRUE)
    assert (code.reason, tests.exit_code) in [("ended", 0), ("over", 0)], "code ends with its tests, if not before"
    assert sandbox._process.pid == pid

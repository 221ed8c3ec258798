"""What the keeper says of an end that it heard of late."""

import marshal
import os
import signal
import sys

import pytest

from claw_r1.consumers.sandbox.keeper import Running

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

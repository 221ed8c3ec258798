"""A program that is asked to stop ends in its own order."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from claw_r1.runtime.stop_signals import StopSignals
stop = StopSignals()
print("ready", flush=True)
while not stop.wait(0.01):
    pass
print("stopped", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_and_not_the_program(number: signal.Signals) -> None:
    """After SIGTERM or Ctrl-C the lines after the loop still run."""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, cwd=root) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(number)
        assert program.stdout.read() == "stopped\n"
    assert program.returncode == 0

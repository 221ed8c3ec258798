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


INSIDE_A_WAIT = """
import signal
from claw_r1.runtime.stop_signals import stop_event
stop = stop_event()
with stop._cond:  # the lock that `stop.wait` holds before it sleeps and after it
    signal.raise_signal(signal.%s)
print(stop.wait(10))
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_in_the_middle_of_a_wait_sets_the_event(name: str) -> None:
    """The handler runs in the thread that waits: it takes no lock that this thread may hold."""
    done = subprocess.run([sys.executable, "-c", INSIDE_A_WAIT % name], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("True\n", 0)


SWALLOWED = """
import signal
from claw_r1.runtime.processes.processes import Processes
from claw_r1.runtime.stop_signals import Interrupts
interrupts = Interrupts()

class Resource:
    def __del__(self):
        signal.raise_signal(signal.%s)

Resource()
print("swallowed", flush=True)
with Processes(interrupt=interrupts.check) as processes:
    try:
        processes.poll()
    except KeyboardInterrupt:
        print("heard at the next look", flush=True)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_that_a_finalizer_swallows_is_heard_at_the_next_look(name: str) -> None:
    """Python prints what is raised in a finalizer and goes on; whoever looks after processes is interrupted all the same."""
    done = subprocess.run([sys.executable, "-c", SWALLOWED % name], capture_output=True, text=True, check=False)
    assert "KeyboardInterrupt" in done.stderr  # ignored in Resource.__del__
    assert done.stdout.splitlines() == ["swallowed", "heard at the next look"]
    assert done.returncode == 0

"""How a trainer is asked to stop."""

import subprocess
import sys

INTERRUPTED = """
import signal
from claw_r1.trainer import signals
with signals.as_flag(6) as stop:
    with stop._cond:  # as `stop.wait` holds it for a moment
        signal.raise_signal(signal.SIGTERM)
    print(stop.wait(5))
"""


def test_a_signal_in_the_middle_of_a_wait_for_it_is_seen() -> None:
    """A handler that took the flag's lock would wait for the very code that it interrupts, for ever."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "True\n"


STUCK = """
import signal, time
from claw_r1.trainer import signals
with signals.as_flag(0.2):
    signal.raise_signal(signal.SIGTERM)
    time.sleep(30)
"""


def test_a_process_that_does_not_end_in_time_says_so_and_leaves() -> None:
    """With 0: the run can be resumed. The line tells what may be missing, and which setting gives more time."""
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=20, check=True)
    (line,) = done.stderr.splitlines()
    assert "stop_timeout_s" in line
    assert "not exported" in line

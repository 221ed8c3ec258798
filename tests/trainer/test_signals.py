"""How a trainer is asked to stop."""

import subprocess
import sys

INTERRUPTED = """
import signal
from trainer import signals
with signals.as_flag() as stop:
    with stop._cond:  # as `stop.wait` holds it for a moment
        signal.raise_signal(signal.SIGTERM)
    print(stop.wait(5))
"""


def test_a_signal_in_the_middle_of_a_wait_for_it_is_seen() -> None:
    """A handler that took the flag's lock would wait for the very code that it interrupts, for ever."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "True\n"

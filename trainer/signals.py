"""SIGTERM and SIGINT as one flag, and a limit to how long anybody waits for it to be seen."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOP_TIMEOUT_S = 6.0
"""From the signal to the end of the process; leaving in the middle of anything is safe (see `run.py`)."""


@contextmanager
def as_flag() -> Iterator[threading.Event]:
    """The flag, set by the first signal. A process that does not end by itself in time ends where it stands, with 0."""
    stop = threading.Event()

    def on_signal(*_: object) -> None:
        # Not by this thread: it may be inside `stop.wait` and hold the lock that `set` waits for.
        threading.Thread(target=stop.set, daemon=True).start()
        timer = threading.Timer(STOP_TIMEOUT_S, os._exit, (0,))
        timer.daemon = True
        timer.start()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

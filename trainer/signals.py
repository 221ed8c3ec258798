"""SIGTERM and SIGINT as one flag, and a limit to how long anybody waits for it to be seen."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_flag(timeout_s: float) -> Iterator[threading.Event]:
    """The flag, set by the first signal.

    A process that does not end by itself within `timeout_s` says so and ends where it stands, with 0: leaving in the
    middle of anything is safe (see `run.py`).
    """
    stop = threading.Event()

    def on_signal(*_: object) -> None:
        # Not by this thread: it may be inside `stop.wait` and hold the lock that `set` waits for.
        threading.Thread(target=stop.set, daemon=True).start()
        timer = threading.Timer(timeout_s, _leave, (timeout_s,))
        timer.daemon = True
        timer.start()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(timeout_s: float) -> None:
    line = (
        f"trainer: left where it stood, {timeout_s:g} s after the signal (stop_timeout_s). Nothing is lost; a last version "
        "that was not exported by then is served again once the trainer is back"
    )
    os.write(sys.stderr.fileno(), f"{line}\n".encode())  # whatever holds the lock of the stream
    os._exit(0)

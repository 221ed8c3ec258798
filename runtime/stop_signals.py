"""SIGTERM and SIGINT as a flag, for a program that ends what it runs in its own order.

The main thread decides which way. An event loop has its own (`add_signal_handler`: streams, workers, agents' runs), whose callbacks
may take locks. `StopSignals` is for a loop that polls (`claw up`, the gateway's processes), `Interrupts` for a program that unwinds
(the demo, an export), `stop_event` for waits of threads (consumers, a trainer's followers; `trainer/signals.py` adds a time limit).
"""

import signal
import threading
import time
from types import FrameType

POLL_S = 0.2


class StopSignals:
    """Takes both signals from now on. A plain flag: a handler that takes a lock may wait for
    the code it interrupts."""

    def __init__(self) -> None:
        self.received = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def wait(self, timeout_s: float = POLL_S) -> bool:
        """Returns whether a signal came; waits up to `timeout_s` for one."""
        if not self.received:
            time.sleep(timeout_s)
        return self.received

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.received = True


class Interrupts(StopSignals):
    """Both signals as KeyboardInterrupt, for a program that unwinds. Python only prints what is raised in a finalizer, where a
    signal is handled as well as anywhere: whoever waits for long calls `check` now and then."""

    def check(self) -> None:
        """Raises KeyboardInterrupt when a signal came."""
        if self.received:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        super()._on_signal(number, frame)
        self.check()


def stop_event() -> threading.Event:
    """An event that both signals set from now on, by a thread: the main one may be inside `wait`, which holds the event's lock."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=stop.set, daemon=True).start())
    return stop

"""SIGTERM and SIGINT as a flag, for a program that ends what it runs in its own order."""

import signal
import time
from types import FrameType

POLL_S = 0.2


class StopSignals:
    """Takes both signals from now on. A plain flag: a handler that takes a lock may wait for the code it interrupts."""

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

"""The time in which something has to move, for what may take any time in whole."""

import time


class Patience:
    """Begins with its making, and anew whenever something moved."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._moved_s = seconds, time.monotonic()

    def is_over(self, *, moved: bool) -> bool:
        """Returns whether nothing has moved for so long. moved: since the last time this was asked."""
        now_s = time.monotonic()
        if moved:
            self._moved_s = now_s
        return now_s - self._moved_s > self._seconds

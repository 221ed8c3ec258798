"""The occupancy of a server: seconds with a call in it, with none, and paused for new weights."""

import time
from collections.abc import Callable


class Occupancy:
    """Each second since the start counts once: as paused while weights change, whoever waits meanwhile."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.calls = 0
        self._is_paused = False
        self._clock_s = clock_s
        self._since_s = clock_s()
        self._seconds = {"serving": 0.0, "idle": 0.0, "paused": 0.0}

    def enter(self) -> None:
        """A call begins."""
        self.seconds()
        self.calls += 1

    def leave(self) -> None:
        """A call has ended."""
        self.seconds()
        self.calls -= 1

    def pause(self, is_paused: bool) -> None:
        """Sampling stands still from now on, or goes on."""
        self.seconds()
        self._is_paused = is_paused

    def seconds(self) -> dict[str, float]:
        """By what was done, up to now."""
        now_s = self._clock_s()
        self._seconds["paused" if self._is_paused else "serving" if self.calls else "idle"] += now_s - self._since_s
        self._since_s = now_s
        return {name: round(seconds, 3) for name, seconds in self._seconds.items()}

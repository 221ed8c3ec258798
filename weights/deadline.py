"""The limit on the travel of a version: one deadline for all steps, which grows with the bytes."""

import time
from collections.abc import Callable

from claw_r1.weights.errors import DeadlineExceeded


class Deadline:
    """A point on the monotonic clock, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds
        self._interrupt: Callable[[], object] = lambda: None

    def cancel(self) -> None:
        """The time is over now; also ends what waits in another thread."""
        self._ends_at = 0.0
        self._interrupt()

    def interrupted_by(self, interrupt: Callable[[], object]) -> None:
        """Sets how `cancel` ends a blocking call. Must be harmless when nothing blocks any more."""
        self._interrupt = interrupt

    def remaining_s(self, phase: str) -> float:
        """Seconds left for `phase`; raises DeadlineExceeded when there are none."""
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceeded(f"no time left for: {phase}")
        return left_s

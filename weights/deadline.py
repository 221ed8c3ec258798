"""One deadline for several steps: what the first step uses up is missing from the last."""

import time
from datetime import timedelta

from weights.errors import DeadlineExceeded


class Deadline:
    """A point on the monotonic clock, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    def remaining(self, phase: str) -> timedelta:
        """Time left for `phase`; raises DeadlineExceeded when there is none."""
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise DeadlineExceeded(f"no time left for: {phase}")
        return timedelta(seconds=left_s)

"""Notices a worker that is alive and does nothing, as Faust does after some rebalances and with an empty assignment.

Invariant: judged from counters alone; an idle log is no stall, a slow worker is none either.
"""


class Watchdog:
    """Stalled: facts are waiting, and none has been folded for `stall_s`."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._processed = -1
        self._moved_at_s = 0.0

    def stalled(self, *, processed: int, lag: int, now_s: float) -> bool:
        """processed: a count that grows with each fact; lag: facts waiting; now_s: a clock that never goes back."""
        if processed != self._processed or lag <= 0:
            self._processed, self._moved_at_s = processed, now_s
        return now_s - self._moved_at_s >= self._stall_s

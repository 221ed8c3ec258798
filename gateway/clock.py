"""The clock by which workers grow stale: it stands still while the log is away.

Invariant: a report that could not arrive makes no worker stale. Else an outage of the log longer than `worker_ttl_s`
would take away every engine, though calls can be served and spooled.
"""

from collections.abc import Callable

from gateway.workers import now_ms


class LogClock:
    """UTC milliseconds; while `away`, those of the last look before. Looked at with every call, so that is just then."""

    def __init__(self, away: Callable[[], bool], clock_ms: Callable[[], float] = now_ms) -> None:
        self._away, self._clock_ms = away, clock_ms
        self._last_ms = clock_ms()

    def __call__(self) -> float:
        if not self._away():
            self._last_ms = self._clock_ms()
        return self._last_ms

"""The number of times that a dead child is started again, and the wait before each. Pure: the
clock is an argument."""

from dataclasses import dataclass, field

UNLIMITED = 2**63
DOUBLINGS_MAX = 20
"""Keeps 2**n within a float; every sensible `delay_max_s` is reached long before."""


@dataclass(frozen=True)
class RestartBudget:
    """At most `restarts_max` restarts within any `window_s`; the n-th of them waits `delay_s`
    * 2**(n-1) before it."""

    restarts_max: int = 3
    window_s: float = 120.0
    delay_s: float = 0.2
    delay_max_s: float = 5.0


@dataclass
class Deaths:
    """The recent deaths of one child, against its budget."""

    budget: RestartBudget
    _times_s: list[float] = field(default_factory=list)

    def restart_delay_s(self, now_s: float) -> float | None:
        """Notes a death at `now_s`; the seconds to wait before the restart, or None when the budget is spent."""
        self._times_s = [time_s for time_s in self._times_s if now_s - time_s <= self.budget.window_s] + [now_s]
        if len(self._times_s) > self.budget.restarts_max:
            return None
        doublings = min(len(self._times_s) - 1, DOUBLINGS_MAX)
        return min(self.budget.delay_s * 2.0**doublings, self.budget.delay_max_s)

"""The limits on a call's waiting for an engine, and on its resends."""

import asyncio
import time
from collections.abc import Callable

from claw_r1.gateway.errors import GatewayError, UpstreamBroken
from claw_r1.gateway.settings import GatewaySettings


class RetryBudget:
    """The time and resends that one call has left."""

    def __init__(self, settings: GatewaySettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._wait_s, self._wait_max_s = settings.retry_wait_s, settings.retry_wait_max_s
        self._resends_left = settings.resends_max
        self._budget_s = settings.worker_wait_s
        self._clock = clock
        self._sent_s = clock()
        self._deadline_s: float | None = None

    def sent(self) -> None:
        """Notes that an engine gets the call now."""
        self._sent_s = self._clock()

    async def after(self, failure: GatewayError) -> None:
        """Wait before the next try, longer each time. Raises the failure when there shall be none."""
        if isinstance(failure, UpstreamBroken):
            if not self._resends_left:
                raise failure
            self._resends_left -= 1
            if self._deadline_s is not None:  # the engine had the call and worked: that was no waiting for one
                self._deadline_s += self._clock() - self._sent_s
        if self._wait_s > self.left_s(failure):
            raise failure
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, self._wait_max_s)

    def left_s(self, failure: GatewayError) -> float:
        """Seconds left of the budget, which begins to run with the first use. Raises the failure when none are left."""
        now = self._clock()
        if self._deadline_s is None:
            self._deadline_s = now + self._budget_s
        if now >= self._deadline_s:
            raise failure
        return self._deadline_s - now

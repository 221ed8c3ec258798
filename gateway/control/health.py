"""Is this process alive, and should it get traffic?"""

import asyncio
import importlib.metadata
import time
from collections import deque
from collections.abc import Callable

from fastapi.responses import JSONResponse

from claw_r1.gateway.upstream.engines import EngineTable
from claw_r1.runtime.monitoring.server import NotReady

LAG_EVERY_S = 0.25
LAG_SAMPLES = 40  # 10 s


class Health:
    """The health routes. `not_ready` returns the reason why traffic should go elsewhere, in a word, or None."""

    def __init__(self, engines: EngineTable, not_ready: NotReady) -> None:
        self._engines, self._not_ready = engines, not_ready

    async def live(self) -> dict[str, str]:
        """The event loop runs."""
        return {"status": "alive"}

    async def ready(self) -> JSONResponse:
        """Reports whether the views are up to date and the log or the spool takes events. Calls wait for a worker, so
        none is required."""
        reason = self._not_ready()
        content = {"ready": reason is None, "reason": reason, "workers": len(self._engines.live())}
        return JSONResponse(content, status_code=503 if reason else 200)

    async def version(self) -> dict[str, str]:
        return {"name": "claw-r1", "version": importlib.metadata.version("claw-r1")}


async def watch_loop_lag(report: Callable[[float], None]) -> None:
    """Report, until cancelled, the longest delay of the event loop in the last 10 s, in seconds."""
    recent: deque[float] = deque(maxlen=LAG_SAMPLES)
    while True:
        before = time.perf_counter()
        await asyncio.sleep(LAG_EVERY_S)
        recent.append(max(0.0, time.perf_counter() - before - LAG_EVERY_S))
        report(max(recent))

"""Is this process alive, and should it get traffic?"""

import asyncio
import importlib.metadata
import time
from collections import deque
from collections.abc import Callable

from fastapi.responses import JSONResponse

from gateway.upstream.engines import WorkerTable

NotReady = Callable[[], str | None]
LAG_EVERY_S = 0.25
LAG_SAMPLES = 40  # 10 s


class Health:
    """`not_ready` says in a word why traffic should go elsewhere, or None."""

    def __init__(self, workers: WorkerTable, not_ready: NotReady) -> None:
        self._workers, self._not_ready = workers, not_ready

    async def live(self) -> dict[str, str]:
        """The event loop runs."""
        return {"status": "alive"}

    async def ready(self) -> JSONResponse:
        """Views are read and followed, and log or spool takes events. Calls wait for a worker, so workers are told but not required."""
        reason = self._not_ready()
        content = {"ready": reason is None, "reason": reason, "workers": len(self._workers.live())}
        return JSONResponse(content, status_code=503 if reason else 200)

    async def version(self) -> dict[str, str]:
        """What is installed."""
        return {"name": "claw-r1", "version": importlib.metadata.version("claw-r1")}


async def watch_loop_lag(report: Callable[[float], None]) -> None:
    """Tell, for ever, by how much the event loop was late at worst in the last 10 s."""
    recent: deque[float] = deque(maxlen=LAG_SAMPLES)
    while True:
        before = time.perf_counter()
        await asyncio.sleep(LAG_EVERY_S)
        recent.append(max(0.0, time.perf_counter() - before - LAG_EVERY_S))
        report(max(recent))

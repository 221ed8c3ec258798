"""Reports of workers, announced to the calls that wait for one."""

import asyncio
from contextlib import suppress

from gateway.upstream.engines import WorkerTable


class WorkerReports:
    """Tells waiting calls, all at once, that a worker reported. Reports come on another thread."""

    def __init__(self, workers: WorkerTable) -> None:
        self._workers = workers
        self._event: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def next(self) -> asyncio.Event:
        """Set by the next report."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._workers.on_report = self._reported
        self._event = self._event or asyncio.Event()
        return self._event

    def _reported(self) -> None:
        if self._event is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._set)

    def _set(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            event.set()

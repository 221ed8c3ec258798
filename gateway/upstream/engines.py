"""The engines that can take a call: live rollout workers, seen through their topic, or fixed upstreams.

Input: `rollout.workers`, key worker_id, newest record per worker. A replay only rebuilds the table. `apply` runs on a
follower's thread, everything else on the event loop; entries are replaced whole, so no lock is needed.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from claw_r1.eventlog.records import Record
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import WorkerReported
from claw_r1.schemas.topics import TAKES_TRAFFIC

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine to which a call can be sent. A fixed upstream has no worker_id and serves
    whatever model is asked for."""

    url: str
    worker_id: str | None = None
    model: str | None = None
    """Name under which the engine serves it; None: any."""
    model_id: str | None = None
    """The scope of versions; None: the model asked for."""
    run_id: str | None = None
    version: int | None = None
    state: str = "ready"
    reported_ms: int | None = None
    """Time of the newest report; None: never stale."""
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)
    """Since it started: serving, idle, paused."""

    @property
    def fixed(self) -> bool:
        return self.worker_id is None

    @property
    def behind(self) -> bool:
        """The weights are too old for their samples to be trained."""
        return self.state == "behind"

    def serves(self, model: str | None) -> bool:
        return self.model is None or model is None or self.model == model


class EngineTable:
    """Engines by worker id, with the moment of their last report."""

    def __init__(
        self,
        ttl_s: float,
        fixed: Sequence[Engine] = (),
        clock_ms: Callable[[], float] = lambda: time.time() * 1000,
        log_away: Callable[[], bool] = lambda: False,
    ) -> None:
        """clock_ms: UTC milliseconds. log_away: whether the log is known to be away, so that reports cannot arrive."""
        self._log_away = log_away
        self._ttl_ms = ttl_s * 1000
        self._fixed = list(fixed)
        self._clock_ms = clock_ms
        self._workers: dict[bytes, Engine] = {}
        self.seconds: Counter[str] = Counter()
        """The time of all engines since this table began, by activity; it never falls."""
        self._next_report: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def apply(self, record: Record) -> None:
        """Take over the newest record of a worker; a tombstone removes it."""
        key = record.key or b""
        if record.value is None:
            self._workers.pop(key, None)
            return
        try:
            event = record.event()
        except UndecodableRecord as broken:  # another reader dead-letters it; here the older report stays
            log.warning("worker_report_undecodable", key=key.decode(errors="replace"), reason=broken.reason)
            return
        if isinstance(event, WorkerReported):
            before, self._workers[key] = self._workers.get(key), _engine(event, record.timestamp_ms)
            if before is not None:  # an engine that was started again begins at 0
                growth = {name: max(s - before.seconds.get(name, 0), 0) for name, s in event.seconds.items()}
                self.seconds = self.seconds + Counter(growth)
            self._wake_waiters()

    def live(self) -> list[Engine]:
        """Engines that can take a call now.

        While the log is away, time stands still at the last report of any worker: an outage takes no engine away.
        """
        workers = list(self._workers.values())
        now = max((worker.reported_ms or 0 for worker in workers), default=0) if self._log_away() else self._clock_ms()
        oldest = now - self._ttl_ms
        live = [engine for engine in workers if engine.state in TAKES_TRAFFIC and (engine.reported_ms or 0) >= oldest]
        return self._fixed + live

    def is_quiet(self) -> bool:
        """Returns whether workers have reported and none of them does any more: all have ended, or no report arrives."""
        reports = [worker.reported_ms or 0 for worker in list(self._workers.values())]
        return bool(reports) and max(reports) < self._clock_ms() - self._ttl_ms

    def next_report(self) -> asyncio.Event:
        """Set by the next report of any worker, for all who wait for one. To be called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._next_report = self._next_report or asyncio.Event()
        return self._next_report

    def _wake_waiters(self) -> None:
        if self._next_report is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._reported)

    def _reported(self) -> None:
        """On the event loop, which alone makes and takes the event."""
        event, self._next_report = self._next_report, None
        if event is not None:
            event.set()

    def knows(self, model: str | None) -> bool:
        """Returns whether some engine, live or not, serves this model."""
        return any(engine.serves(model) for engine in [*self._fixed, *list(self._workers.values())])


def _engine(event: WorkerReported, timestamp_ms: int) -> Engine:
    return Engine(
        url=event.url.rstrip("/"),
        worker_id=event.worker_id,
        model=event.model,
        model_id=event.model_id,
        run_id=event.run_id,
        version=event.version,
        state=event.state,
        reported_ms=timestamp_ms,
        seconds=event.seconds,
    )

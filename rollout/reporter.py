"""Tells the log what this worker is: at every change, and every `report_interval_s` as a sign of life.

Only the newest state is worth a report, so a slow broker delays reports and never the worker.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import structlog

from claw_r1.rollout.settings import RolloutSettings
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import WeightsPublished, WorkerReported, WorkerState

log = structlog.get_logger()


class ReportSink(Protocol):
    """The sink of reports. `report` raises ReportLost when nobody took it."""

    async def report(self, event: WorkerReported) -> None: ...


class ReportLost(RuntimeError):
    """A report was not acknowledged. The next one replaces it."""


@dataclass(frozen=True, slots=True)
class Status:
    """The changing part of a worker's report; `loaded` is None while it serves the weights that it started with."""

    state: WorkerState = "starting"
    loaded: WeightsPublished | None = None
    in_flight: int = 0
    capabilities: tuple[str, ...] = ()
    detail: str | None = None
    sync_ms: Mapping[str, float] = field(default_factory=dict)
    weights_from: str | None = None
    kv_usage: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    def same_but_load(self, other: "Status") -> bool:
        """Returns whether only numbers differ that change all the time."""
        return replace(self, in_flight=other.in_flight, kv_usage=other.kv_usage, seconds=other.seconds) == other


class Reporter:
    """Holds the status and publishes it."""

    def __init__(self, settings: RolloutSettings, url: str, sink: ReportSink) -> None:
        self._settings = settings
        self._url = url
        self._sink = sink
        self._changed = asyncio.Event()
        self.status = Status()

    def change(self, **fields: object) -> None:
        """Replace fields of the status; reported at once when anything but the load differs."""
        before, self.status = self.status, replace(self.status, **fields)  # type: ignore[arg-type]  # names are Status's
        if before.same_but_load(self.status):
            return
        self._changed.set()
        label = None if self.status.loaded is None else self.status.loaded.version
        log.info("worker_state", state=self.status.state, version=label, detail=self.status.detail)

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            self._changed.clear()
            await self.report_now()
            try:
                await asyncio.wait_for(self._changed.wait(), self._settings.report_interval_s)
            except TimeoutError:
                continue

    async def report_now(self) -> None:
        """One report; a loss is logged, not raised."""
        try:
            await self._sink.report(self._event())
        except ReportLost as error:
            log.warning("report_lost", error=str(error))

    def _event(self) -> WorkerReported:
        settings, status = self._settings, self.status
        run_id = None if status.loaded is None else status.loaded.run_id
        return WorkerReported(
            envelope=envelope(f"rollout/{settings.worker_id}", run_id=run_id),
            worker_id=settings.worker_id,
            url=self._url,
            model_id=settings.model_id,
            model=settings.served_name,
            state=status.state,
            run_id=run_id,
            version=None if status.loaded is None else status.loaded.version,
            in_flight=status.in_flight,
            report_interval_s=settings.report_interval_s,
            capabilities=status.capabilities,
            detail=status.detail,
            kv_usage=status.kv_usage,
            sync_ms=status.sync_ms,
            weights_from=status.weights_from,
            seconds=status.seconds,
        )

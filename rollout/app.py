"""The composition root: a supervisor on a real log, until SIGTERM or SIGINT."""

import asyncio
import signal
from collections.abc import Callable, Iterable

import aiohttp
import structlog

from eventlog.errors import LogError
from eventlog.producer import EventProducer
from eventlog.reader import LogReader
from eventlog.records import Record
from eventlog.settings import LogSettings
from rollout.reporter import ReportLost, ReportSink
from rollout.server import VllmServer
from rollout.settings import RolloutSettings
from rollout.supervisor import Supervisor, WeightsFeed
from schemas.errors import UndecodableRecord
from schemas.events import WeightsPublished, WorkerReported
from schemas.topics import WEIGHTS, WORKERS

log = structlog.get_logger()

POLL_TIMEOUT_S = 0.5


async def serve(
    settings: RolloutSettings, feed: WeightsFeed, sink: ReportSink, stop: asyncio.Event | None = None
) -> None:
    """One worker from start to end. Raises RolloutError or what the feed raises."""
    stop = stop or _stop_on_signals()
    async with aiohttp.ClientSession() as http:
        await Supervisor(settings, http, VllmServer(settings), feed, sink).run(stop)


async def serve_on_log(settings: RolloutSettings, log_settings: LogSettings) -> None:
    """`serve` with Kafka on both sides."""
    producer = EventProducer(log_settings)
    try:
        await serve(settings, WeightsOnLog(log_settings), ReportsToLog(producer))
    finally:
        await asyncio.to_thread(producer.close)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


class ReportsToLog:
    """A ReportSink: claw.rollout.workers."""

    def __init__(self, producer: EventProducer) -> None:
        self._producer = producer

    async def report(self, event: WorkerReported) -> None:
        """Acknowledged, or ReportLost."""
        try:
            await self._producer.publish(WORKERS, event.worker_id.encode(), event)
        except LogError as error:
            raise ReportLost(str(error)) from error


class WeightsOnLog:
    """A WeightsFeed: claw.weights from its beginning, read committed. A record that cannot be decoded is skipped."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings

    async def run(self, on_event: Callable[[WeightsPublished], None], caught_up: asyncio.Event) -> None:
        """Deliver for ever; raises LogError."""
        reader = await asyncio.to_thread(LogReader, self._settings, [WEIGHTS])
        try:
            _deliver(await asyncio.to_thread(_backlog, reader), on_event)
            caught_up.set()
            while True:
                _deliver(await asyncio.to_thread(reader.poll, POLL_TIMEOUT_S), on_event)
        finally:
            reader.close()


def _backlog(reader: LogReader) -> list[Record]:
    return list(reader.read_to_end())


def _deliver(records: Iterable[Record], on_event: Callable[[WeightsPublished], None]) -> None:
    for record in records:
        try:
            event = record.event()
        except UndecodableRecord as error:
            log.warning("weights_undecodable", partition=record.partition, offset=record.offset, reason=error.reason)
            continue
        if isinstance(event, WeightsPublished):
            on_event(event)

"""The composition root: a supervisor on a log, until SIGTERM or SIGINT."""

import asyncio
import signal

import aiohttp

from eventlog.errors import LogError
from eventlog.protocols import Log
from rollout.command import check_model
from rollout.errors import CannotStart
from rollout.reporter import ReportSink
from rollout.server import VllmServer
from rollout.settings import RolloutSettings
from rollout.supervisor import Supervisor, WeightsFeed
from rollout.topics import ReportsTopic, WeightsTopic
from schemas.topics import WEIGHTS, WORKERS


async def serve(
    settings: RolloutSettings, feed: WeightsFeed, sink: ReportSink, stop: asyncio.Event | None = None
) -> None:
    """One worker from start to end. Raises RolloutError or what the feed raises."""
    check_model(settings.model)
    stop = stop or _stop_on_signals()
    # vLLM closes the connection after a 500, so one that is used again may be half closed.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        await Supervisor(settings, http, VllmServer(settings), feed, sink).run(stop)


async def serve_on_log(settings: RolloutSettings, log: Log) -> None:
    """`serve` with a log on both sides. Raises CannotStart before anything is started when the log is not there."""
    try:
        await asyncio.to_thread(log.end_offsets, [WEIGHTS, WORKERS])
    except LogError as error:
        raise CannotStart(str(error)) from error
    producer = log.producer()
    try:
        await serve(settings, WeightsTopic(log), ReportsTopic(producer))
    finally:
        await asyncio.to_thread(producer.close)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop

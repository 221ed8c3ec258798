"""The composition root: a supervisor on a log, until SIGTERM or SIGINT."""

import asyncio
import signal
import tempfile
from pathlib import Path

import aiohttp

from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.rollout import worker_name
from claw_r1.rollout.errors import CannotStart
from claw_r1.rollout.process.server import VllmServer
from claw_r1.rollout.reporter import ReportSink
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.rollout.supervisor import Stop, Supervisor, WeightsFeed
from claw_r1.rollout.topics import ReportsTopic, WeightsTopic
from claw_r1.runtime.monitoring.registry import watch_disk
from claw_r1.runtime.monitoring.server import monitored
from claw_r1.schemas.topics import WEIGHTS, WORKERS
from claw_r1.weights.host_copies import shared_directory


async def serve(settings: RolloutSettings, feed: WeightsFeed, sink: ReportSink, stop: Stop | None = None) -> None:
    """One worker from start to end. Raises RolloutError, MetricsPortTaken, or what the feed raises."""
    stop = stop or _stop_on_signals()
    # vLLM closes the connection after a 500, so one that is used again may be half closed.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        supervisor = Supervisor(settings, http, VllmServer(settings), feed, sink)
        metrics = supervisor.metrics
        watch_disk(metrics.registry, copies=settings.copies_dir or shared_directory() or Path(tempfile.gettempdir()))
        with monitored(metrics.registry, settings.metrics_host, settings.metrics_port, metrics.not_ready):
            await supervisor.run(stop)


async def serve_on_log(settings: RolloutSettings, log: KafkaLog) -> None:
    """`serve` with a log on both sides, under a name of its own.

    Raises CannotStart before anything is started when the log is not there, or the name is somebody else's.
    """
    scope = f"{log.settings.bootstrap_servers}/{log.settings.prefix}"
    try:
        await asyncio.to_thread(log.end_offsets, [WEIGHTS, WORKERS])
        own = await asyncio.to_thread(worker_name.claim, settings.worker_id, log, scope)
    except LogError as error:
        raise CannotStart(str(error)) from error
    settings = settings.model_copy(update={"worker_id": own.worker_id})
    producer = log.producer()
    try:
        await serve(settings, WeightsTopic(log, settings.model_id, settings.run_id), ReportsTopic(producer))
    finally:
        await asyncio.to_thread(producer.close)
        own.lock.close()


def _stop_on_signals() -> Stop:
    """The first signal drains, the second ends."""
    stop = Stop()

    def on_signal() -> None:
        (stop.now if stop.drain.is_set() else stop.drain).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stop

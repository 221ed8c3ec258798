"""The composition root: check the broker, run one worker in a loop of our own, stop on a signal."""

import asyncio
import gc
import os
import signal
import sys

import structlog
import uvloop

from claw_r1.eventlog.kafka.admin import check_catalogue, end_offsets
from claw_r1.eventlog.security import LOOK_S, SecretsWatch
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.monitoring.server import monitored
from claw_r1.runtime.monitoring.tracing import traced
from claw_r1.schemas.topics import FACTS
from claw_r1.streams.errors import ExitCode
from claw_r1.streams.settings import StreamsSettings
from claw_r1.streams.standby import POOL
from claw_r1.streams.worker import StreamsWorker

log = structlog.get_logger()

YOUNG_OBJECTS = 20_000
"""The number of young objects that makes Python look for cycles, of which folds make none: they keep thousands of facts
for a flush."""


def serve(settings: StreamsSettings, log_settings: LogSettings) -> int:
    """Blocks until SIGTERM or SIGINT. Raises BrokerUnreachable, TopicMissing, OSError (metrics port) before it starts."""
    check_catalogue(log_settings, "streams")
    # A worker that starts before the leaders know the topics gets an empty assignment and idles.
    end_offsets(log_settings, [*FACTS, *POOL])
    gc.set_threshold(YOUNG_OBJECTS)
    uvloop.install()  # Faust turns the loop once per message, and has a second one in a thread
    if asyncio.run(_serve(settings, log_settings)):
        # Clients read certificates when they are made, and producers cannot be made again without fencing a successor.
        os.execv(sys.executable, sys.orig_argv)
    return ExitCode.STOPPED


async def _serve(settings: StreamsSettings, log_settings: LogSettings) -> bool:
    """Folds until told to stop; returns True if it should restart with other secrets."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    worker = StreamsWorker(settings, log_settings)
    log.info("streams_starting", prefix=log_settings.prefix, partitions=log_settings.partitions)
    renewing = asyncio.create_task(_new_secrets(SecretsWatch(log_settings)))
    renewing.add_done_callback(lambda _: stopping.set())
    watched = monitored(worker.metrics.registry, settings.metrics_host, settings.metrics_port, worker.not_ready)
    with traced("streams"), watched:
        await worker.run(stopping)
    renews = renewing.done()
    renewing.cancel()
    log.info("streams_stopped", renews=renews)
    return renews


async def _new_secrets(watch: SecretsWatch) -> None:
    """Returns when the files have changed."""
    while True:
        await asyncio.sleep(LOOK_S)
        if await asyncio.to_thread(watch.changed):
            log.info(
                "streams_secrets_changed", what_now="all that is folded is committed, then the program begins again"
            )
            return

"""The two ends of a worker on the log: versions come in from claw.weights, reports go out to claw.rollout.workers."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import structlog

from eventlog.errors import BrokerUnreachable, LogError
from eventlog.protocols import Log, Producer, Reader
from eventlog.records import Record
from rollout.reporter import ReportLost
from schemas.errors import UndecodableRecord
from schemas.events import WeightsPublished, WorkerReported
from schemas.topics import WEIGHTS, WORKERS

log = structlog.get_logger()

POLL_TIMEOUT_S = 0.5
RETRY_AFTER_S = 2.0
OnEvent = Callable[[WeightsPublished], None]


class ReportsTopic:
    """A ReportSink."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def report(self, event: WorkerReported) -> None:
        """Acknowledged, or ReportLost."""
        try:
            await self._producer.publish(WORKERS, event.worker_id.encode(), event)
        except LogError as error:
            raise ReportLost(str(error)) from error


class WeightsTopic:
    """A WeightsFeed: the whole topic, read committed. A broker that is away is waited for; vLLM serves meanwhile."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def run(self, on_event: OnEvent, caught_up: asyncio.Event) -> None:
        """Deliver for ever; raises LogError when waiting cannot help."""
        while True:
            try:
                await self._read(on_event, caught_up)
            except BrokerUnreachable as error:
                log.warning("weights_topic_unreachable", error=str(error), retry_after_s=RETRY_AFTER_S)
                await asyncio.sleep(RETRY_AFTER_S)

    async def _read(self, on_event: OnEvent, caught_up: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        # A reader belongs to one thread, also while it is closed in the middle of a poll.
        with_reader = ThreadPoolExecutor(1, thread_name_prefix="weights-topic")
        try:
            reader: Reader = await loop.run_in_executor(with_reader, self._log.reader, [WEIGHTS])
            try:
                _deliver(await loop.run_in_executor(with_reader, _backlog, reader), on_event)
                caught_up.set()
                while True:
                    _deliver(await loop.run_in_executor(with_reader, reader.poll, POLL_TIMEOUT_S), on_event)
            finally:
                with_reader.submit(reader.close)
        finally:
            with_reader.shutdown(wait=False)


def _backlog(reader: Reader) -> list[Record]:
    return list(reader.read_to_end())


def _deliver(records: Iterable[Record], on_event: OnEvent) -> None:
    for record in records:
        try:
            event = record.event()
        except UndecodableRecord as error:
            # Not to the dead letters: every worker reads the whole topic at every start.
            log.warning("weights_undecodable", partition=record.partition, offset=record.offset, reason=error.reason)
            continue
        if isinstance(event, WeightsPublished):
            on_event(event)

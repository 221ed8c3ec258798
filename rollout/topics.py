"""The two ends of a worker on the log: versions come in from claw.weights, reports go out to
claw.rollout.workers."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import structlog

from claw_r1.eventlog.errors import BrokerUnreachable, HistoryCut, LogError
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.protocols import Log, Producer, Reader
from claw_r1.eventlog.records import Record
from claw_r1.rollout.reporter import ReportLost
from claw_r1.schemas.codec import fields_before_lists
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import WeightsPublished, WorkerReported
from claw_r1.schemas.topics import WEIGHTS, WORKERS

log = structlog.get_logger()

POLL_TIMEOUT_S = 0.5
RETRY_AFTER_S = 2.0
FIRST_SPAN = 64
"""Offsets from the end in which the newest version is looked for; a version takes two, with
its transaction's mark."""
SPAN_GROWTH = 32
NEWEST = 8
"""Versions that are decoded: of an incarnation that ends and one that begins, the last few
may come in any order."""
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
    """A WeightsFeed: from the newest versions of a model and run on, read committed, however many came before.

    A broker that is away is waited for; vLLM serves meanwhile.
    """

    def __init__(self, log: Log, model_id: str, run_id: str | None) -> None:
        self._log = log
        self._key = model_id.encode()
        self._run_id = run_id

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
            reader, newest = await loop.run_in_executor(with_reader, self._open)
            try:
                _deliver(newest, on_event)
                caught_up.set()
                while True:
                    records = await loop.run_in_executor(with_reader, reader.poll, POLL_TIMEOUT_S)
                    _deliver(filter(self._concerns, records), on_event)
            finally:
                with_reader.submit(reader.close)
        finally:
            with_reader.shutdown(wait=False)

    def _open(self) -> tuple[Reader, list[Record]]:
        """A reader at the end of the model's partition, and what it read: as much as it takes to see a version, or all."""
        ends = self._log.end_offsets([WEIGHTS])
        place = next(place for place in ends if place[1] == partition_of(self._key, len(ends)))
        span = FIRST_SPAN
        while True:
            begin = max(0, ends[place] - span)
            try:
                reader = self._log.reader(
                    [WEIGHTS], partitions=[place[1]], start={place: begin} if begin else "beginning"
                )
                newest = [record for record in reader.read_to_end() if self._concerns(record)]
            except HistoryCut:  # what stood there was deleted; there is no more than what is left
                begin, reader = 0, self._log.reader([WEIGHTS], partitions=[place[1]])
                newest = [record for record in reader.read_to_end() if self._concerns(record)]
            if newest or not begin:
                return reader, newest[-NEWEST:]
            reader.close()
            span *= SPAN_GROWTH

    def _concerns(self, record: Record) -> bool:
        """Returns whether a record is of this model and run, which its first bytes say; one that cannot be read is for
        `_deliver` to say."""
        if record.key != self._key or self._run_id is None:
            return record.key == self._key
        try:
            return fields_before_lists(record.value).get("run_id") == self._run_id
        except UndecodableRecord:
            return True


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

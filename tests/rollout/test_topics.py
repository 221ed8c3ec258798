"""A worker's two ends on the log, on its memory twin."""

import asyncio
from collections.abc import Callable

from eventlog.memory import MemoryLog
from eventlog.records import Outgoing
from rollout.topics import ReportsTopic, WeightsTopic
from schemas.codec import decode
from schemas.envelopes import envelope
from schemas.events import WeightsPublished, WorkerReported
from schemas.topics import WEIGHTS, WORKERS


def published(version: int) -> WeightsPublished:
    return WeightsPublished(
        envelope=envelope("trainer/test"),
        model_id="m",
        run_id="run",
        version=version,
        digest="d",
        bytes_total=0,
        manifest=(),
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # the condition is a plain list, it has no event
            await asyncio.sleep(0.01)


async def test_the_backlog_comes_before_caught_up_and_new_versions_after() -> None:
    """Everything published before the start is delivered before a worker may become ready; later versions follow."""
    log = MemoryLog()
    log.create_topics()
    producer = log.producer()
    await producer.publish(WEIGHTS, b"m", published(0))
    await producer.publish(WEIGHTS, b"m", published(1))
    got: list[int] = []
    caught_up = asyncio.Event()
    feed = asyncio.create_task(WeightsTopic(log).run(lambda event: got.append(event.version), caught_up))
    await asyncio.wait_for(caught_up.wait(), 5)
    assert got == [0, 1]
    await producer.publish(WEIGHTS, b"m", published(2))
    await until(lambda: got == [0, 1, 2])
    feed.cancel()


async def test_a_record_that_cannot_be_decoded_is_passed_over() -> None:
    """Rubbish in the topic does not keep a worker from the versions after it."""
    log = MemoryLog()
    log.create_topics()
    producer = log.producer()
    producer.produce(Outgoing(topic=WEIGHTS, key=b"m", value=b"rubbish")).result()
    await producer.publish(WEIGHTS, b"m", published(1))
    got: list[int] = []
    feed = asyncio.create_task(WeightsTopic(log).run(lambda event: got.append(event.version), asyncio.Event()))
    await until(lambda: got == [1])
    feed.cancel()


async def test_a_report_lies_under_its_workers_key() -> None:
    """The topic is compacted: one worker, one key, the newest report."""
    log = MemoryLog()
    log.create_topics()
    report = WorkerReported(
        envelope=envelope("rollout/w"),
        worker_id="w",
        url="http://h:1",
        model_id="m",
        model="policy",
        state="ready",
        report_interval_s=2.0,
    )
    await ReportsTopic(log.producer()).report(report)
    (record,) = log.reader([WORKERS]).read_to_end()
    assert record.key == b"w"
    assert decode(record.value) == report

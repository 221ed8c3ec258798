"""A worker's two ends on the log, on its memory twin."""

import asyncio
from collections.abc import Sequence

import pytest

from claw_r1.eventlog.errors import BrokerUnreachable
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.memory.readers import MemoryReader
from claw_r1.eventlog.protocols import Start
from claw_r1.eventlog.records import Outgoing, Place, Record
from claw_r1.rollout.topics import ReportsTopic, WeightsTopic
from claw_r1.schemas.codec import decode
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import WeightsPublished, WorkerReported
from claw_r1.schemas.topics import WEIGHTS, WORKERS, Topic
from tests.patience import until_async


def published(version: int, run_id: str = "run") -> WeightsPublished:
    return WeightsPublished(
        envelope=envelope("trainer/test"),
        model_id="m",
        run_id=run_id,
        version=version,
        digest="d",
        bytes_total=0,
        manifest=(),
    )


async def test_the_backlog_comes_before_caught_up_and_new_versions_after() -> None:
    """Everything published before the start is delivered before a worker may become ready; later versions follow."""
    log = MemoryLog()
    log.create_topics()
    producer = log.producer()
    await producer.publish(WEIGHTS, b"m", published(0))
    await producer.publish(WEIGHTS, b"m", published(1))
    got: list[int] = []
    caught_up = asyncio.Event()
    feed = asyncio.create_task(WeightsTopic(log, "m", None).run(lambda event: got.append(event.version), caught_up))
    await asyncio.wait_for(caught_up.wait(), 5)
    assert got == [0, 1]
    await producer.publish(WEIGHTS, b"m", published(2))
    await until_async(lambda: got == [0, 1, 2])
    feed.cancel()


async def test_a_record_that_cannot_be_decoded_is_passed_over() -> None:
    """Rubbish in the topic does not keep a worker from the versions after it."""
    log = MemoryLog()
    log.create_topics()
    producer = log.producer()
    producer.produce(Outgoing(topic=WEIGHTS, key=b"m", value=b"rubbish")).result()
    await producer.publish(WEIGHTS, b"m", published(1))
    got: list[int] = []
    feed = asyncio.create_task(
        WeightsTopic(log, "m", None).run(lambda event: got.append(event.version), asyncio.Event())
    )
    await until_async(lambda: got == [1])
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


async def test_of_many_versions_only_the_newest_are_read() -> None:
    """A worker that starts late needs the newest of its run; others come in between, and what comes after is delivered."""
    log = MemoryLog()
    log.create_topics()
    producer = log.producer()
    for version in range(300):
        await producer.publish(WEIGHTS, b"m", published(version))
    for version in range(200):
        await producer.publish(WEIGHTS, b"m", published(version, "other"))
    for run_id, newest in (("run", 299), ("other", 199), (None, 199)):
        got: list[tuple[str, int]] = []
        caught_up = asyncio.Event()
        topic = WeightsTopic(log, "m", run_id)
        feed = asyncio.create_task(
            topic.run(lambda event, got=got: got.append((event.run_id, event.version)), caught_up)
        )  # type: ignore[misc]  # a class or a lambda made in the test
        await asyncio.wait_for(caught_up.wait(), 5)
        assert got[-1] == (run_id or "other", newest)
        assert len(got) <= 8
        feed.cancel()
    await asyncio.gather(feed, return_exceptions=True)


async def test_versions_after_a_start_are_those_of_the_run() -> None:
    """What another run publishes later is passed over without being decoded."""
    log = MemoryLog()
    log.create_topics()
    producer = log.producer()
    got: list[int] = []
    caught_up = asyncio.Event()
    feed = asyncio.create_task(WeightsTopic(log, "m", "run").run(lambda event: got.append(event.version), caught_up))
    await asyncio.wait_for(caught_up.wait(), 5)
    await producer.publish(WEIGHTS, b"m", published(7, "other"))
    await producer.publish(WEIGHTS, b"m", published(3))
    await until_async(lambda: got == [3])
    feed.cancel()


async def test_deleted_history_is_no_obstacle() -> None:
    """Where retention removed what the first look begins at, the rest is read."""
    log = MemoryLog()
    log.create_topics()
    producer = log.producer()
    positions = [await producer.publish(WEIGHTS, b"m", published(version)) for version in range(70)]
    last = positions[-1]
    log.delete_records({(last.topic, last.partition): last.offset})
    got: list[int] = []
    caught_up = asyncio.Event()
    feed = asyncio.create_task(WeightsTopic(log, "m", "run").run(lambda event: got.append(event.version), caught_up))
    await asyncio.wait_for(caught_up.wait(), 5)
    assert got == [69]
    feed.cancel()


async def test_a_broker_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is not there, at the start and later: what was published meanwhile is delivered, the newest last."""
    monkeypatch.setattr("claw_r1.rollout.topics.RETRY_AFTER_S", 0.01)
    monkeypatch.setattr("claw_r1.rollout.topics.POLL_TIMEOUT_S", 0.01)
    log = AwayLog()
    log.create_topics()
    producer = log.producer()
    got: list[int] = []
    caught_up = asyncio.Event()
    log.away = True
    feed = asyncio.create_task(WeightsTopic(log, "m", "run").run(lambda event: got.append(event.version), caught_up))
    await until_async(lambda: log.refused >= 3)
    assert not caught_up.is_set(), "a worker that knows no version would be ready with old weights"
    for version in range(3):
        await producer.publish(WEIGHTS, b"m", published(version))
        log.away = False
        await until_async(lambda version=version: got[-1:] == [version])  # type: ignore[misc]  # bound now
        log.away, log.refused = True, 0
        await until_async(lambda: log.refused >= 3)
    feed.cancel()
    await asyncio.gather(feed, return_exceptions=True)


class AwayLog(MemoryLog):
    """Out of reach for readers, also for those that it opened before, while `away`."""

    away = False
    refused = 0

    def end_offsets(self, topics: Sequence[Topic]) -> dict[Place, int]:
        self.ask()
        return super().end_offsets(topics)

    def reader(
        self, topics: Sequence[Topic], *, partitions: Sequence[int] | None = None, start: Start = "beginning"
    ) -> MemoryReader:
        self.ask()
        return AwayReader(self, topics, partitions=partitions, start=start)

    def ask(self) -> None:
        if self.away:
            self.refused += 1
            raise BrokerUnreachable("away")


class AwayReader(MemoryReader):
    """Of an AwayLog."""

    def poll(self, timeout_s: float, records_max: int = 500) -> list[Record]:
        assert isinstance(self._log, AwayLog)
        self._log.ask()
        return super().poll(timeout_s, records_max)

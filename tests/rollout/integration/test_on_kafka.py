"""A worker's ends on a real broker: where it begins to read, and whose name it has."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.eventlog.kafka.admin import create_topics
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.rollout.errors import CannotStart
from claw_r1.rollout.topics import ReportsTopic, WeightsTopic
from claw_r1.rollout.worker_name import claim
from claw_r1.schemas.events import WorkerReported
from claw_r1.schemas.topics import WEIGHTS, WORKERS
from tests.rollout.scripted import Trainer, scripted_worker
from tests.rollout.scripted_vllm import ScriptedVllm
from tests.rollout.test_topics import published
from tests.rollout.test_worker_name import LASTING, REPORT
from tests.soak import SOAK

pytestmark = pytest.mark.kafka
AWAY_S = 60 if SOAK else 8
BACK_S = 60


async def test_a_worker_begins_with_the_newest_version(log_settings: LogSettings) -> None:
    """Each version in a transaction of its own, whose marks take offsets too; another run's came last; then a new one comes."""
    log = KafkaLog(log_settings)
    writer = log.transactions("test")
    writer.open()
    for version in range(60):
        writer.commit([Outgoing.of(WEIGHTS, b"m", published(version))])
    for version in range(60):
        writer.commit([Outgoing.of(WEIGHTS, b"m", published(version, "other"))])
    versions: list[int] = []
    caught_up = asyncio.Event()
    feed = asyncio.create_task(
        WeightsTopic(log, "m", "run").run(lambda event: versions.append(event.version), caught_up)
    )
    await asyncio.wait_for(caught_up.wait(), 20)
    assert versions[-1] == 59
    assert len(versions) <= 8
    writer.commit([Outgoing.of(WEIGHTS, b"m", published(60))])
    async with asyncio.timeout(20):
        while versions[-1] != 60:  # noqa: ASYNC110  # a plain list
            await asyncio.sleep(0.02)
    feed.cancel()
    await asyncio.gather(feed, return_exceptions=True)
    writer.close()


def test_a_name_is_refused_while_its_reports_go_on(log_settings: LogSettings, tmp_path: Path) -> None:
    """A worker of another host holds it; when its reports have ended, the name is free."""
    log = KafkaLog(log_settings)
    producer, stop = log.producer(), threading.Event()

    def report() -> None:
        while not stop.wait(0.05):
            producer.publish_now(WORKERS, b"w", LASTING)

    reporting = threading.Thread(target=report)
    producer.publish_now(WORKERS, b"w", LASTING)
    reporting.start()
    try:
        with pytest.raises(CannotStart, match="--worker-id w is held by the worker at http://elsewhere:1"):
            claim("w", log, "log", tmp_path)
    finally:
        stop.set()
        reporting.join()
    producer.publish_now(WORKERS, b"w", REPORT)  # the last one says how long its silence must be
    assert claim("w", log, "log", tmp_path).worker_id == "w"
    producer.close()


@pytest.mark.slow
@pytest.mark.soak
async def test_a_worker_serves_on_without_its_broker_and_catches_up(local_broker: LocalBroker, tmp_path: Path) -> None:
    """Killed and away for a while (a minute in `make soak`), the broker costs a worker nothing but news: it stays ready with
    what it has and answers, and afterwards it loads what is published and is heard of again."""
    settings = LogSettings(bootstrap_servers=local_broker.bootstrap, prefix="away", partitions=2)
    create_topics(settings)
    log, engine, trainer = KafkaLog(settings), ScriptedVllm(), Trainer()
    reports, producer = log.producer(), log.producer()
    both = {"feed": WeightsTopic(log, "m", "run"), "sink": ReportsTopic(reports)}
    async with scripted_worker(engine, trainer, tmp_path, **both) as worker:
        await asyncio.to_thread(producer.publish_now, WEIGHTS, b"m", trainer.publish(0))
        await worker.until(lambda report: report.version == 0, BACK_S)
        await asyncio.to_thread(local_broker.kill)
        looks = engine.looks
        await asyncio.sleep(AWAY_S)
        assert (worker.task.done(), worker.server.starts, worker.reports[-1].state) == (False, 1, "ready")
        assert engine.looks > looks + AWAY_S, "nobody looks after the engine while the broker is away"
        local_broker.start()  # in this thread: the broker ends with the thread that starts it
        at_ms = time.time() * 1000
        await asyncio.to_thread(producer.publish_now, WEIGHTS, b"m", trainer.publish(1))
        await worker.until(lambda report: (report.state, report.version) == ("ready", 1), BACK_S)
        assert worker.server.starts == 1
        assert await asyncio.to_thread(heard_of, log, at_ms) == 1
    for each in (reports, producer):
        await asyncio.to_thread(each.close)


def heard_of(log: KafkaLog, since_ms: float) -> int:
    """The version that the newest report names, once there is one that is younger."""
    reader = log.reader([WORKERS])
    ends_at = time.monotonic() + BACK_S
    try:
        while time.monotonic() < ends_at:
            for record in reader.poll(0.5):
                report = record.event()
                if isinstance(report, WorkerReported) and record.timestamp_ms > since_ms and report.version == 1:
                    return report.version
    finally:
        reader.close()
    raise AssertionError("no report after the broker was back")

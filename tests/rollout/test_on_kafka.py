"""A worker's ends on a real broker: where it begins to read, and whose name it has."""

import asyncio
import threading
from pathlib import Path

import pytest

from eventlog.kafka.log import KafkaLog
from eventlog.records import Outgoing
from eventlog.settings import LogSettings
from rollout.errors import CannotStart
from rollout.identity import claim
from rollout.topics import WeightsTopic
from schemas.topics import WEIGHTS, WORKERS
from tests.rollout.test_identity import REPORT
from tests.rollout.test_topics import published

pytestmark = pytest.mark.kafka


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
            producer.publish_now(WORKERS, b"w", REPORT)

    reporting = threading.Thread(target=report)
    producer.publish_now(WORKERS, b"w", REPORT)
    reporting.start()
    try:
        with pytest.raises(CannotStart, match="--worker-id w is held by the worker at http://elsewhere:1"):
            claim("w", log, "log", tmp_path)
    finally:
        stop.set()
        reporting.join()
    assert claim("w", log, "log", tmp_path).worker_id == "w"
    producer.close()

"""Every contract test runs twice: on the log in memory and on a real broker."""

import contextlib
from collections.abc import Iterator

import pytest

from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.protocols import Producer
from claw_r1.eventlog.settings import LogSettings
from tests.eventlog.samples import AnyLog

PARTITIONS = 2


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def log(request: pytest.FixtureRequest) -> AnyLog:
    """A log with all topics and nothing in them."""
    if request.param == "memory":
        return MemoryLog(LogSettings(partitions=PARTITIONS))
    return KafkaLog(request.getfixturevalue("log_settings"))


@pytest.fixture
def kafka(log_settings: LogSettings) -> KafkaLog:
    """The real log, for what only it can show."""
    return KafkaLog(log_settings)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Ends what a test opened, last opened first."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def producer(log: AnyLog) -> Iterator[Producer]:
    producer = log.producer()
    yield producer
    producer.close()

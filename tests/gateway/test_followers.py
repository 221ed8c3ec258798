"""How long a gateway that starts reads the log."""

import time
from collections.abc import Iterator, Sequence

import pytest
from structlog.testing import capture_logs

from claw_r1.eventlog.errors import NotCaughtUp
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.memory.readers import MemoryReader
from claw_r1.eventlog.protocols import Start
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.gateway.control.admission import AdmissionView
from claw_r1.gateway.followers import Followers
from claw_r1.gateway.http.auth import KeyRing
from claw_r1.gateway.upstream.engines import EngineTable
from claw_r1.schemas.topics import GROUPS, Topic
from tests.gateway.house import group

TIMEOUT_S = 2.0
BETWEEN_S = 0.25
ROWS = 10


class SlowReader(MemoryReader):
    """One record after the other, each after a while; nothing any more once the log stands still."""

    def poll(self, timeout_s: float, records_max: int = 500) -> list[Record]:
        time.sleep(BETWEEN_S)
        if log_of(self).grows:
            log_of(self).producer().produce(Outgoing.of(GROUPS, b"k", group("g"))).result()
        return [] if log_of(self).stands_still else super().poll(timeout_s, 1)


class SlowLog(MemoryLog):
    """A log with `SlowReader`s. grows: by a record for each that is read."""

    stands_still = grows = False

    def reader(
        self, topics: Sequence[Topic], *, partitions: Sequence[int] | None = None, start: Start = "beginning"
    ) -> MemoryReader:
        return SlowReader(self, topics, partitions=partitions, start=start)


def log_of(reader: MemoryReader) -> SlowLog:
    assert isinstance(reader._log, SlowLog)
    return reader._log


@pytest.fixture
def log() -> SlowLog:
    slow = SlowLog()
    producer = slow.producer()
    for number in range(ROWS):
        producer.produce(Outgoing.of(GROUPS, b"k", group(f"g{number}"))).result()
    return slow


@pytest.fixture
def admission() -> AdmissionView:
    return AdmissionView()


@pytest.fixture
def followers(log: SlowLog, admission: AdmissionView) -> Iterator[Followers]:
    """Of a gateway that is about to start."""
    made = Followers(log, EngineTable(6.0), KeyRing(), admission, timeout_s=TIMEOUT_S)
    yield made
    made.stop()


def test_a_start_takes_the_time_that_the_pool_takes(followers: Followers, admission: AdmissionView) -> None:
    """A pool keeps its groups, so that reading them once takes longer than any limit: it says what is left, and goes on."""
    with capture_logs() as lines:
        followers.start(lambda _: None)
    assert followers.not_ready() is None
    assert admission.run_of(f"g{ROWS - 1}") == "r"
    left = [line["records_left"] for line in lines if line["event"] == "gateway_reading_log"]
    assert left == sorted(left, reverse=True) != []


def test_a_start_does_not_run_after_an_end_that_moves(log: SlowLog, followers: Followers) -> None:
    """Streams that catch up write rows as fast as they are read; what was there as the gateway began is enough."""
    log.grows = True
    followers.start(lambda _: None)
    assert followers.not_ready() is None


def test_a_start_ends_when_nothing_comes_any_more(log: SlowLog, followers: Followers) -> None:
    """Records that are there and do not come are no pool that is large: the process says so, and ends."""
    log.stands_still = True
    with pytest.raises(NotCaughtUp):
        followers.start(lambda _: None)
    assert followers.not_ready() == "catching_up"

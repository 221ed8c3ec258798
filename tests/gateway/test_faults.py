"""What breaks in the gateway itself: the client gets an answer, the log a fact, the next call is served."""

import json
from collections.abc import Iterator

import pytest

from eventlog.memory import MemoryLog, MemoryProducer
from eventlog.records import Position
from schemas.events import CallCaptured, Event
from schemas.topics import Topic
from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House
from tests.gateway.test_calls import ask
from tests.gateway.test_streams import DONE, read, read_broken


class _Producer(MemoryProducer):
    broken = True

    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position:
        if self.broken and isinstance(event, CallCaptured):
            raise TypeError("what no event can hold")
        return await super().publish(topic, key, event)


class _Log(MemoryLog):
    """A log that breaks over captured calls, in a way that nobody foresaw."""

    def __init__(self) -> None:
        super().__init__()
        self.made = _Producer(self)

    def producer(self) -> MemoryProducer:
        return self.made


@pytest.fixture
def breaking(engine: ScriptedEngine) -> Iterator[tuple[House, _Log]]:
    """A gateway on such a log."""
    log = _Log()
    with House(log) as house:
        house.worker(engine.url)
        yield house, log


async def test_a_bug_over_a_call_is_a_failed_call(breaking: tuple[House, _Log]) -> None:
    """The client gets a 500 without a trace of the bug, the log says that a call was made, the next one is served."""
    house, log = breaking
    reply = await ask(house)
    assert (reply.status, reply.json["error"]["code"]) == (500, "internal_error")
    assert "no event" not in str(reply.json)
    (failure,) = house.failed
    assert (failure.reason, failure.http_status, failure.worker_id) == ("internal_error", 500, "w0")
    log.made.broken = False
    assert (await ask(house)).status == 200


async def test_a_bug_over_a_stream_is_a_failed_call(breaking: tuple[House, _Log]) -> None:
    """A stream under way is broken off after one error event, counted and stored as failed; never begun a second time."""
    house, log = breaking
    got = await read_broken(house)
    assert DONE not in got
    assert json.loads(got.split(b"\n\n")[-2][6:])["error"]["code"] == "internal_error"
    assert [failure.reason for failure in house.failed] == ["internal_error"]
    assert b'claw_gateway_streams_total{end="internal_error"} 1.0' in house.metrics.exposition()
    log.made.broken = False
    assert (await read(house)).endswith(DONE)

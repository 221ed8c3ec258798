"""What breaks in the gateway itself: the client gets an answer, the log a fact, the next call is served."""

import contextlib
import json
import resource
from collections.abc import Iterator

import aiohttp
import pytest
from structlog.testing import capture_logs

from claw_r1.eventlog.memory import MemoryLog, MemoryProducer
from claw_r1.eventlog.records import Position
from claw_r1.gateway.serve import raise_files_max
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.schemas.events import CallCaptured, Event
from claw_r1.schemas.topics import Topic
from tests.gateway.capture.test_stream import DONE, read, read_broken
from tests.gateway.engine import Reply, ScriptedEngine, completion, stream
from tests.gateway.house import ASK, House, ask


class _Producer(MemoryProducer):
    broken = True
    only = b""
    """What a reply holds that it breaks over."""

    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position:
        if self.broken and isinstance(event, CallCaptured) and self.only in event.response_body:
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


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_bug_over_a_reply_is_not_for_ever(
    breaking: tuple[House, _Log], engine: ScriptedEngine, streamed: bool
) -> None:
    """A reply that cannot be stored is not kept for retries: one under the same key is answered, as its next attempt."""
    house, log = breaking
    log.made.only = b"cursed"
    asks = {**ASK, "stream": streamed}
    seen = {**asks, "logprobs": True, "return_token_ids": True}
    engine.then(stream(seen, words=("cursed",)) if streamed else completion(seen, text="cursed"))
    with contextlib.suppress(aiohttp.ClientPayloadError):
        assert (await ask(house, asks, idempotency_key="k")).status == 500
    assert [failure.reason for failure in house.failed] == ["internal_error"]
    assert (await ask(house, asks, idempotency_key="k")).status == 200
    assert [call.attempt for call in house.captured] == [1]
    assert (await ask(house, asks, idempotency_key="k")).status == 200
    assert len(engine.requests) == 2, "the good reply is repeated"


@contextlib.contextmanager
def open_files(soft: int) -> Iterator[None]:
    """A limit on what this process may open; what is open stays."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_without_files_it_is_not_the_engine_that_is_away(house: House, engine: ScriptedEngine) -> None:
    """Out of file descriptors, a call is refused at once, as overload of the gateway; with some, the next one is served."""
    async with aiohttp.ClientSession() as session:
        async with session.get(house.url + "/livez") as reply:  # the connection that the call takes
            await reply.read()
        with open_files(3):
            async with session.post(house.url + "/t/g/v1/chat/completions", data=b'{"messages": []}') as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (503, "overloaded")
        async with session.post(house.url + "/t/g/v1/chat/completions", data=b'{"messages": []}') as reply:
            assert reply.status == 200
    assert [failure.reason for failure in house.failed] == ["overloaded"]
    assert len(engine.requests) == 1


def test_the_limit_on_files_is_raised() -> None:
    """A process takes all that it may have, and says when that is less than its own limits ask for."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with open_files(min(256, hard)):
        with capture_logs() as quiet:
            raise_files_max(GatewaySettings(connections_max=1, calls_max=1))
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
        with capture_logs() as warned:
            raise_files_max(GatewaySettings(connections_max=hard))
    assert quiet == []
    assert [line["event"] for line in warned] == ["few_open_files"]


async def test_a_provider_that_fails_to_list_its_models_is_a_502(engine: ScriptedEngine) -> None:
    """Its own error page is nothing for a client."""
    with House(upstreams=engine.url) as house:
        engine.then(Reply(b"<html>boom", status=500))
        async with aiohttp.ClientSession() as session, session.get(house.url + "/v1/models") as reply:
            assert (reply.status, (await reply.json())["error"]["code"]) == (502, "upstream_broken")

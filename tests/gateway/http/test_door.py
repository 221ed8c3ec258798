"""What holds for every request alike, whatever answers it."""

import asyncio
import json

import aiohttp
import pytest
from structlog.testing import capture_logs

from claw_r1.eventlog.memory import MemoryLog, MemoryProducer
from claw_r1.eventlog.records import Position
from claw_r1.schemas.events import Event, RewardAssigned
from claw_r1.schemas.topics import Topic
from tests.gateway.engine import Reply, ScriptedEngine, completion
from tests.gateway.house import House
from tests.gateway.http.test_connection import LARGE, POST, ROOM, asking, held, statuses
from tests.gateway.processes import poll
from tests.gateway.raw import CHAT, GOOD, say, send
from tests.patience import until

REWARD = "/t/g/v1/rewards"


def request_rows(house: House) -> list[str]:
    """The metric of requests, a row for each route and status."""
    rows = house.metrics.exposition().decode().splitlines()
    return [row for row in rows if row.startswith("claw_gateway_requests_total")]


@pytest.mark.parametrize(("path", "route"), [(CHAT, "chat"), (REWARD, "control")])
async def test_a_client_that_leaves_within_its_body_is_counted_and_logged(path: str, route: str) -> None:
    """Its request has one line and one count, with the status of a client that left, and holds nothing."""
    with House(access_log=True) as house, capture_logs() as lines:
        _, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"))
        writer.write(b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n{" % path.encode())
        await poll(lambda: held(house) == 1)
        writer.transport.abort()
        await poll(lambda: not house.connections)
        assert held(house) == 0
        assert request_rows(house) == [f'claw_gateway_requests_total{{route="{route}",status="499"}} 1.0']
    (line,) = [line for line in lines if line["event"] == "request"]
    assert (line["method"], line["path"], line["status"], line["reply_bytes"]) == ("POST", path, 499, 0)


async def test_control_requests_take_room_and_health_needs_none(engine: ScriptedEngine) -> None:
    """A reward that finds no room is a 503 with Retry-After until there is some; whoever watches the process is answered."""
    with House(**ROOM) as house:
        house.worker(engine.url)
        engine.then(completion({}, text="x" * 20_000_000))
        reader, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"), limit=1024)
        writer.write(asking(GOOD))
        await poll(lambda: house.captured)
        status, reply = await send(house, "POST", REWARD, b'{"value": 1}')
        assert (status, json.loads(reply)["error"]["code"]) == (503, "overloaded")
        assert [(await send(house, "GET", path, None))[0] for path in ("/livez", "/readyz", "/metrics")] == [200] * 3
        await reader.read(-1)
        await poll(lambda: held(house) == 0)
        assert (await send(house, "POST", REWARD, b'{"value": 1}'))[0] == 200
        assert held(house) == 0
        writer.close()


async def test_the_body_of_a_control_request_counts_while_it_comes(engine: ScriptedEngine) -> None:
    """The bytes of a body that is not whole keep others out, whichever route it is for."""
    with House(**ROOM, control_bytes_max=200_000) as house:
        house.worker(engine.url)
        _, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"))
        writer.write(b"POST /groups HTTP/1.1\r\nhost: localhost\r\ncontent-length: 190000\r\n\r\n" + b" " * 180_000)
        await poll(lambda: held(house) == 180_000)
        assert statuses(await say(house.url, asking(LARGE))) == [503]
        writer.close()
        await poll(lambda: held(house) == 0)
        assert statuses(await say(house.url, asking(LARGE))) == [200]


class _Producer(MemoryProducer):
    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position:
        if isinstance(event, RewardAssigned) and event.value == 0:
            raise TypeError("secret of the house")
        return await super().publish(topic, key, event)


class _Log(MemoryLog):
    """A log that breaks over one reward, in a way that nobody foresaw."""

    def producer(self) -> MemoryProducer:
        return _Producer(self)


async def test_a_bug_over_a_control_request_is_a_500() -> None:
    """In OpenAI's shape and without a trace of the bug, counted once; its connection serves the next request."""
    with House(_Log()) as house, capture_logs() as lines:
        async with aiohttp.ClientSession(house.url, connector=aiohttp.TCPConnector(limit=1)) as session:
            async with session.post(REWARD, json={"value": 0}) as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (500, "internal_error")
                assert "secret" not in await reply.text()
            async with session.post(REWARD, json={"value": 1}) as reply:
                assert reply.status == 200
            assert house.connections == 1
        assert sorted(request_rows(house)) == [
            'claw_gateway_requests_total{route="control",status="200"} 1.0',
            'claw_gateway_requests_total{route="control",status="500"} 1.0',
        ]
    assert [line["event"] for line in lines] == ["bug_in_request"]


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\r\n\r\n", b"\x00", b"{}\r\n"])
async def test_what_follows_a_call_under_way_is_never_answered_in_its_place(
    house: House, engine: ScriptedEngine, garbage: bytes
) -> None:
    """Bytes that begin no request end their connection without a word: the reply that is due is another request's."""
    engine.then(Reply(hang=True))
    whole = POST + b"content-length: %d\r\n\r\n%b" % (len(GOOD), GOOD)
    assert await say(house.url, whole, garbage, pause_s=0.2) == b""
    await asyncio.to_thread(until, lambda: house.failed)
    assert [event.reason for event in house.failed] == ["client_disconnected"]


async def test_a_head_request_gets_no_body(house: House) -> None:
    """What a GET would get is told by its length only, so that nothing passes for the next reply."""
    head = b"HEAD /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n"
    heard = await say(
        house.url, head, b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", pause_s=0.1
    )
    assert statuses(heard) == [405, 200]
    assert heard.count(b"{") == 1


async def test_a_request_of_two_hosts_is_refused(house: House) -> None:
    """Each proxy on the way may have believed another one of them."""
    twice = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    heard = await say(house.url, twice, pause_s=0.1)
    assert statuses(heard) == [400]
    assert b"one Host header" in heard

"""Any mixture of requests on any number of connections, cut anywhere: each has its one reply, and nothing stays."""

import asyncio
import contextlib
import json
from dataclasses import replace
from random import Random

import pytest

from tests.gateway.engine import Action, Received, Reply, ScriptedEngine, completion, stream
from tests.gateway.house import House
from tests.gateway.processes import poll
from tests.gateway.test_metrics import sample

CONNECTIONS = 40
GONE_WITHIN_S = 0.05


def moody(dice: Random) -> Action:
    """An engine that is mostly good, and else paused, broken, late, or in no mood to say anything sensible."""

    def answer(received: Received) -> Reply:
        asked, mood = received.json, dice.random()
        good = stream(asked, pace_s=dice.choice([0, 0.002])) if asked.get("stream") else completion(asked)
        odd = (
            Reply(reset=True),
            Reply(status=503),
            Reply({"error": {"message": "too long"}}, status=400),
            replace(good, delay_s=0.02),
            Reply(b"nonsense"),
        )
        return odd[int(mood * 40)] if mood < len(odd) / 40 else good

    return answer


def request(dice: Random) -> bytes:
    """One whole request."""
    if dice.random() < 0.1:
        return b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
    asks = {"messages": [], "stream": dice.random() < 0.4, "user": "x" * dice.choice([0, 1000, 90_000])}
    body = json.dumps(asks).encode()[: -1 if dice.random() < 0.05 else None]
    head = b"POST /t%d/g/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n" % dice.randrange(5)
    if dice.random() < 0.1:
        head, body = b"POST /t/g/v1/rewards HTTP/1.1\r\nhost: localhost\r\n", b'{"value": 1}'
    if dice.random() < 0.2:
        head += b"x-claw-idempotency-key: k%d\r\n" % dice.randrange(30)
    if dice.random() < 0.7:
        return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    pieces = [body[at : at + 5000] for at in range(0, len(body), 5000)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return head + b"transfer-encoding: chunked\r\n\r\n%b0\r\nx-trailer: a\r\n\r\n" % chunks


async def replied(reader: asyncio.StreamReader) -> int:
    """The status of the next reply, which is read to its end as it says where that is."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 "), head
    if b"transfer-encoding: chunked" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            assert (await reader.readexactly(size + 2)).endswith(b"\r\n")
        await reader.readexactly(2)
    else:
        (length,) = [line for line in head.split(b"\r\n") if line.startswith(b"content-length: ")]
        await reader.readexactly(int(length[16:]))
    return int(head[9:12])


async def converse(url: str, dice: Random) -> None:
    """Ask several times on one connection, ahead of the replies; read them all, or leave in the middle of it."""
    requests = [request(dice) for _ in range(dice.randrange(1, 12))]
    said, leaves = b"".join(requests), dice.random() < 0.3
    reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"), limit=1 << 20)
    reading = asyncio.ensure_future(asyncio.wait_for(_all(reader, len(requests)), 30))
    said = said[: dice.randrange(len(said)) + 1] if leaves else said
    while said:
        size = dice.choice([50, 1000, 100_000])
        piece, said = said[:size], said[size:]
        writer.write(piece)
        await asyncio.sleep(dice.choice([0, 0, 0.005]))
    if leaves:
        await asyncio.sleep(dice.random() * GONE_WITHIN_S)
        reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        statuses = await reading
        assert len(statuses) == len(requests)
        assert set(statuses) <= {200, 201, 400, 502, 503}
    writer.transport.abort()


async def _all(reader: asyncio.StreamReader, count: int) -> list[int]:
    return [await replied(reader) for _ in range(count)]


@pytest.mark.parametrize(("seed", "room"), [(1, 1 << 30), (2, 400_000)])
async def test_every_request_has_its_reply_and_nothing_stays(seed: int, room: int) -> None:
    """Pipelined, chunked, retried, refused, abandoned: replies are whole and in number, and all counters come down."""
    dice = Random(seed)
    with ScriptedEngine(moody(dice)) as engine, House(body_bytes_max=100_000, held_bytes_max=room) as house:
        house.worker(engine.url)
        await asyncio.gather(*(converse(house.url, dice) for _ in range(CONNECTIONS)))
        await poll(lambda: not (house.connections or house.tasks))
        seen = house.metrics.exposition()
        assert sample(seen, "claw_gateway_in_flight") == sample(seen, "claw_gateway_held_bytes") == 0
        assert house.captured

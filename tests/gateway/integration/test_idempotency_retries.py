"""A retry that says nothing of itself is known by the try before it, which came to nothing; equal calls stay apart."""

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import pytest

from claw_r1.schemas.arrays import unpack_ids
from tests.gateway.engine import Reply, ScriptedEngine, completion, stream
from tests.gateway.house import House
from tests.patience import until

ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**ASK, "stream": True}
PATH = "/t1/g1/v1/chat/completions"


async def ask(house: House, body: dict[str, Any] = ASK) -> tuple[int, str, bytes]:
    """Status, call id and body of a reply that is read to its end."""
    async with aiohttp.ClientSession() as session, session.post(house.url + PATH, json=body) as reply:
        return reply.status, reply.headers["x-claw-call-id"], await reply.read()


@contextlib.asynccontextmanager
async def asked(house: House, body: dict[str, Any]) -> Any:
    """A connection on which this was asked, and nothing is read; it is closed at the end."""
    host, port = house.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    data = json.dumps(body).encode()
    writer.write(b"POST %s HTTP/1.1\r\nhost: %s\r\n" % (PATH.encode(), host.encode()))
    writer.write(b"content-length: %d\r\n\r\n%s" % (len(data), data))
    await writer.drain()
    try:
        yield reader
    finally:
        writer.transport.abort()


async def test_after_a_failure(house: House, engine: ScriptedEngine) -> None:
    """Neither a key nor a count: the next attempt of the call that failed."""
    engine.then(*[Reply(b"boom", status=500)] * 3)
    (status, call_id, _), (again, same, _) = await ask(house), await ask(house)
    assert (status, again, call_id == same) == (502, 200, True)
    assert [(event.call_id, event.attempt) for event in (*house.failed, *house.captured)] == [(same, 0), (same, 1)]


@pytest.mark.parametrize("body", [ASK, STREAM], ids=["whole", "stream"])
async def test_after_a_client_left(house: House, engine: ScriptedEngine, body: dict[str, Any]) -> None:
    """Before the first byte: whoever asks again asks for the same call."""
    engine.then(Reply(hang=True))
    async with asked(house, body):
        await asyncio.to_thread(until, lambda: engine.requests)
    await asyncio.to_thread(until, lambda: house.connections == 0)
    _, call_id, _ = await ask(house, body)
    await asyncio.to_thread(until, lambda: house.failed)
    assert [(event.call_id, event.attempt) for event in (*house.failed, *house.captured)] == [
        (call_id, 0),
        (call_id, 1),
    ]


@pytest.mark.parametrize("who", ["client", "engine"])
async def test_after_a_stream_that_broke_off(house: House, engine: ScriptedEngine, who: str) -> None:
    """The part is the first attempt, and the whole is the second: one call in the pool."""
    engine.then(Reply(pieces=stream({**STREAM, "return_token_ids": True}).pieces[:3], hang=who == "client", reset=who == "engine"))  # fmt: skip
    async with asked(house, STREAM) as reader:
        await reader.readuntil(b"llo")
    await asyncio.to_thread(until, lambda: house.captured)
    await asyncio.to_thread(until, lambda: house.connections == 0)
    _, call_id, _ = await ask(house, STREAM)
    assert [(event.call_id, event.attempt, event.status) for event in house.captured] == [
        (call_id, 0, "aborted"),
        (call_id, 1, "completed"),
    ]


async def test_after_a_reply_that_nobody_took(house: House, engine: ScriptedEngine) -> None:
    """Its client was gone before it had read all of it: the same bytes again, nothing generated or stored twice."""
    large = completion({}, text="x" * (8 << 20))
    engine.then(large)
    async with asked(house, ASK) as reader:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.to_thread(until, lambda: house.unsent_bytes)
    await asyncio.to_thread(until, lambda: house.tasks == 0)
    status, call_id, body = await ask(house)
    assert (status, json.loads(body)["choices"][0]["message"]["content"][:2]) == (200, "xx")
    (event,) = house.captured
    assert (event.call_id, event.attempt, len(engine.requests)) == (call_id, 0, 1)


async def test_after_a_reply_that_was_not_acknowledged(house: House, engine: ScriptedEngine) -> None:
    """The same event is stored then, and shown: what was sampled is not sampled again."""
    house.log.refusing = True
    assert (await ask(house))[0] == 503
    house.log.refusing = False
    _, call_id, _ = await ask(house)
    (event,) = house.captured
    assert (event.call_id, event.attempt, len(engine.requests)) == (call_id, 0, 1)


async def test_samples_stay_apart(house: House, engine: ScriptedEngine) -> None:
    """Of equal calls at once one fails: what is asked next is that one again, and what is asked then is a new one."""
    engine.default = lambda received: completion(received.json, text="ok")
    engine.then(completion(ASK), *[Reply(b"boom", status=500)] * 3, completion(ASK))
    first, lost, third = [await ask(house) for _ in range(3)]
    again = third[1]
    new = await ask(house)
    assert (lost[0], again) == (502, lost[1])
    assert len({first[1], lost[1], new[1]}) == 3
    assert {event.call_id: event.attempt for event in house.captured} == {first[1]: 0, lost[1]: 1, new[1]: 0}


async def test_a_later_attempt_stands_on_nothing(house: House, engine: ScriptedEngine) -> None:
    """Others may be written against the attempt before it, so it is written in full: no circle of references."""
    for _ in range(2):
        await ask(house, {**ASK, "seed": 1})
    engine.then(*[Reply(b"boom", status=500)] * 3)
    await ask(house)
    await ask(house)
    event = house.captured[-1]
    assert (event.attempt, event.prompt.base_call_id, event.request.base_call_id) == (1, None, None)
    assert unpack_ids(event.prompt.suffix) == [1, 5, 6, 7]

"""A protocol is one object and one entry of the table: a toy one is served and captured by the gateway as it is."""

import json
from collections.abc import Iterator

import aiohttp
import pytest

from claw_r1.gateway.call_protocol import ReplyStream
from claw_r1.gateway.protocols import PROTOCOLS
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from tests.gateway.capture.test_stream import gather
from tests.gateway.engine import Reply, ScriptedEngine
from tests.gateway.house import ASK, Answer, House, ask
from tests.gateway.json_lines import JsonLines, LineStream

PATH = "/t1/g1/v1/say"
WORDS = (
    b'{"say": "he", "id": 11, "logprob": -0.5}\n',
    b'{"say": "llo", "id": 12, "logprob": -0.25}\n',
)
END = b'{"end": "stop", "prompt_ids": [1, 5]}\n'
STREAM = {"content-type": "application/jsonl"}


@pytest.fixture
def house(engine: ScriptedEngine) -> Iterator[House]:
    """A gateway that speaks the toy protocol besides its own."""
    with House(protocols=(*PROTOCOLS, ("say", JsonLines()))) as running:
        running.worker(engine.url)
        yield running


async def say(house: House, **more: object) -> Answer:
    return await ask(house, {"prompt": "hi", **more}, PATH)


async def broken(house: House) -> bytes:
    """What a client gets of a stream that is broken off."""
    received: list[bytes] = []
    async with aiohttp.ClientSession() as session:
        reply = await session.post(house.url + PATH, json={"prompt": "hi", "stream": True})
        with pytest.raises(aiohttp.ClientPayloadError):
            await gather(reply.content, received)
    return b"".join(received)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_reply_of_any_protocol_is_captured(house: House, engine: ScriptedEngine, streamed: bool) -> None:
    """Whole or streamed: the client has the engine's bytes, the log tokens, log-probabilities, bodies and reason."""
    whole = b"".join((*WORDS, END))
    engine.then(Reply(pieces=(*WORDS, END), headers=STREAM) if streamed else Reply(whole))
    reply = await say(house, stream=streamed)
    assert (reply.status, reply.body) == (200, whole)
    (event,) = house.captured
    assert (event.group_id, event.trajectory_id, event.status, event.finish_reason) == ("g1", "t1", "completed", "stop")
    assert (unpack_ids(event.prompt.suffix), unpack_ids(event.response_ids)) == ([1, 5], [11, 12])
    assert unpack_floats(event.response_logprobs) == [-0.5, -0.25]
    assert (event.integrity.missing, event.response_body) == (("spans",), whole)
    assert json.loads(event.request.suffix) == {"prompt": "hi", "stream": streamed}
    (received,) = engine.requests
    assert (received.path, received.json["ids"]) == ("/v1/say", True)


async def test_errors_have_the_protocols_shape(house: House, engine: ScriptedEngine) -> None:
    """A bad request, a call that is not admitted, a refusal of the engine in its words, and one that clients could not read."""
    engine.then(Reply({"oops": "no"}, status=400), Reply({"oops": None}, status=400))
    for body, status, message in (
        ({}, 400, "prompt is missing"),
        ({"prompt": "hi"}, 400, "no"),
        ({"prompt": "hi"}, 400, '{"oops": null}'),
        ({"prompt": "x" * (5 << 20)}, 413, f"the body is over {house.settings.body_bytes_max} bytes"),
    ):
        reply = await ask(house, body, PATH)
        assert (reply.status, reply.json) == (status, {"oops": message})


async def test_a_broken_stream_ends_in_the_protocols_shape(house: House, engine: ScriptedEngine) -> None:
    """What came is passed on and stored as aborted; the error is one more line, and never the end."""
    engine.then(Reply(pieces=WORDS, headers=STREAM))
    assert await broken(house) == b"".join(WORDS) + b'{"oops": "the engine\'s stream ended before its end"}\n'
    assert [(event.status, unpack_ids(event.response_ids)) for event in house.captured] == [("aborted", [11, 12])]


class FaultyLines(JsonLines):
    """A protocol with a bug."""

    def open_stream(self) -> ReplyStream:
        class FaultyStream(LineStream):
            def feed(self, piece: bytes) -> bytes:
                raise ZeroDivisionError

        return FaultyStream()


async def test_a_bug_of_a_protocol_is_a_failed_call(engine: ScriptedEngine) -> None:
    """It ends the stream with an error, is stored without its trace, and the next request is served."""
    with House(protocols=(("say", FaultyLines()),)) as house:
        house.worker(engine.url)
        engine.then(Reply(pieces=(*WORDS, END), headers=STREAM))
        assert await broken(house) == b'{"oops": "internal error"}\n'
        assert [failure.reason for failure in house.failed] == ["internal_error"]
        engine.then(Reply(b"".join((*WORDS, END))))
        assert (await say(house)).status == 200


async def test_the_other_protocols_are_served_as_before(house: House) -> None:
    """Each path has its own protocol, and an unknown one none."""
    assert (await ask(house, ASK)).json["object"] == "chat.completion"
    assert (await ask(house, ASK, "/t1/g1/v1/sing")).status == 404
    assert 'route="json-lines"' not in house.metrics.exposition().decode()
    await say(house)
    assert 'route="json-lines"' in house.metrics.exposition().decode()


async def test_a_retry_gets_the_captured_reply_of_any_protocol(house: House, engine: ScriptedEngine) -> None:
    """Retries are known by key, whatever the protocol: nothing is generated again."""
    engine.then(Reply(b"".join((*WORDS, END))))
    first = await ask(house, {"prompt": "hi"}, PATH, idempotency_key="k")
    again = await ask(house, {"prompt": "hi"}, PATH, idempotency_key="k")
    assert (first.status, first.body) == (again.status, again.body)
    assert len(engine.requests) == 1

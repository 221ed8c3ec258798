"""Streamed calls end to end: what the client sees and when, what the log holds, and what happens when they break."""

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from claw_r1.gateway.tokens.reply import NOTHING
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from claw_r1.schemas.events import CallCaptured, VersionSpan
from tests.gateway.engine import Json, Received, Reply, ScriptedEngine, chunk, stream
from tests.gateway.house import House
from tests.gateway.packed import choice, comment, generation
from tests.patience import PATIENCE_S, until

ASK: Json = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": True}
ALL: Json = {"logprobs": True, "return_token_ids": True}
PATH = "/t1/g1/v1/chat/completions"
DONE = b"data: [DONE]\n\n"


@contextlib.asynccontextmanager
async def asked(
    house: House, body: Json | None = None, path: str = PATH, **headers: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    named = {"x-claw-" + name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as session,
        session.post(house.url + path, json=body or ASK, headers=named) as reply,
    ):
        yield reply


async def read(house: House, body: Json | None = None, path: str = PATH, **headers: str) -> bytes:
    async with asked(house, body, path, **headers) as reply:
        return await reply.read()


async def read_broken(house: House, body: Json | None = None, path: str = PATH, **headers: str) -> bytes:
    """What a client gets of a stream that is broken off."""
    async with asked(house, body, path, **headers) as reply:
        got: list[bytes] = []
        with pytest.raises(aiohttp.ClientPayloadError):
            await gather(reply.content, got)
        return b"".join(got)


async def gather(content: aiohttp.StreamReader, got: list[bytes]) -> None:
    async for piece in content.iter_any():
        got.append(piece)  # noqa: PERF401  # what came before the error counts


def chunks(body: bytes) -> list[Json]:
    return [json.loads(event[6:]) for event in body.split(b"\n\n") if event.startswith(b"data: {")]


def text_of(call: CallCaptured) -> str:
    """What a captured reply says."""
    text: str = json.loads(call.response_body)["choices"][0]["message"]["content"]
    return text


def replaced(engine: ScriptedEngine, *events: bytes, **how: Any) -> None:
    engine.then(Reply(pieces=events, **how))


@pytest.mark.parametrize("wants", [{}, {"logprobs": True}, ALL, {"stream_options": {"include_usage": True}}])
async def test_client_sees_the_engines_bytes(house: House, engine: ScriptedEngine, wants: Json) -> None:
    """Whatever a client asks for, it gets the engine's bytes less the worker's comment."""
    asks = {**ASK, **wants}
    sent = stream(asks).pieces
    assert await read(house, asks) == b"".join(piece for piece in sent if not piece.startswith(b":"))
    assert house.captured[0].integrity.complete


async def test_stream_is_captured_whole(house: House) -> None:
    """Ids, log-probabilities, versions, times and the completion that the chunks add up to are in the log."""
    body = await read(house, {**ASK, "temperature": 0.5}, idempotency_key="k")
    (event,) = house.captured
    assert unpack_ids(event.prompt.suffix) == [1, 5, 6, 7]
    assert unpack_ids(event.response_ids) == [1, 2, 3]
    assert unpack_floats(event.response_logprobs) == [-0.5] * 3
    assert event.spans == (VersionSpan(run_id="run", version=3, start=0, end=3),)
    assert event.integrity.complete
    assert (event.status, event.finish_reason, event.sampling.temperature) == ("completed", "stop", 0.5)
    assert (event.usage.prompt_tokens, event.usage.completion_tokens) == (4, 3)
    reply = json.loads(event.response_body)
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": "hello!"}
    assert (reply["object"], reply["choices"][0]["logprobs"]) == ("chat.completion", None)
    times = event.timings
    assert times.first_token_us is not None
    assert times.received_us <= times.dispatched_us <= times.first_token_us <= times.done_us
    assert b"".join(part["choices"][0]["delta"].get("content", "").encode() for part in chunks(body)) == b"hello!"
    metrics = house.metrics.exposition().decode()
    assert "claw_gateway_first_token_seconds_count 1.0" in metrics
    assert 'claw_gateway_streams_total{end="completed"} 1.0' in metrics


async def test_chunks_come_when_they_are_made(house: House, engine: ScriptedEngine) -> None:
    """The first chunk is here long before the last one is made."""
    engine.then(stream({**ASK, **ALL}, pace_s=0.1))
    async with asked(house) as reply:
        started = time.monotonic()
        first = await reply.content.readany()
        first_after_s = time.monotonic() - started
        rest = await reply.content.read()
        whole_after_s = time.monotonic() - started
    assert chunks(first)
    assert DONE in rest
    assert whole_after_s - first_after_s > 0.2


async def test_end_comes_after_the_acknowledgement(house: House, engine: ScriptedEngine) -> None:
    """Without acknowledgement every chunk is seen, an error event follows, and the connection ends without an end."""
    house.log.refusing = True
    got = await read_broken(house)
    assert DONE not in got
    assert chunks(got)[-1]["error"]["code"] == "not_captured"
    assert house.captured == []


async def test_retry_of_an_unacknowledged_stream_stores_what_was_sampled(house: House, engine: ScriptedEngine) -> None:
    """The retry costs no second generation: what was sampled is stored, as this try, and shown to its end."""
    house.log.refusing = True
    await read_broken(house, idempotency_key="k")
    house.log.refusing = False
    body = await read(house, idempotency_key="k")
    assert body == await read(house, idempotency_key="k")
    assert body.endswith(DONE)
    assert len(engine.requests) == 1
    one, other = house.captured
    assert (one.attempt, other.attempt) == (1, 2)
    assert unpack_ids(one.response_ids) == unpack_ids(other.response_ids) == [1, 2, 3]


async def test_each_choice_of_a_stream_is_a_call(house: House) -> None:
    """n = 2, chunks in turn: two events, each with its own tokens and text."""
    await read(house, {**ASK, "n": 2, "stream_options": {"include_usage": True}})
    first, second = house.captured
    assert second.call_id == f"{first.call_id}.1"
    assert unpack_ids(second.response_ids) == [11, 12, 13]
    assert [event.usage.completion_tokens for event in (first, second)] == [3, 3]
    assert all(event.integrity.complete for event in (first, second))


async def test_tool_calls_are_put_together(house: House, engine: ScriptedEngine) -> None:
    """Deltas of tool calls become whole calls in the log, and pass as they are."""
    asks = {**ASK, **ALL}

    def call(index: int, ids: list[int], **fields: object) -> bytes:
        return chunk(asked=asks, ids=ids, delta={"tool_calls": [{"index": index, **fields}]})

    head = stream(asks, words=("x",)).pieces
    engine.then(
        Reply(
            pieces=(
                head[0],
                call(0, [1], id="a", type="function", function={"name": "f", "arguments": ""}),
                call(0, [2], function={"arguments": '{"x":'}),
                call(1, [3], id="b", type="function", function={"name": "g", "arguments": "{}"}),
                call(0, [4], function={"arguments": '"}]"}'}),
                chunk(asked=asks, ids=[5], delta={}, finish_reason="tool_calls"),
                comment(),
                DONE,
            )
        )
    )
    await read(house)
    (event,) = house.captured
    assert event.integrity.complete
    assert [made["function"] for made in json.loads(event.response_body)["choices"][0]["message"]["tool_calls"]] == [
        {"name": "f", "arguments": '{"x":"}]"}'},
        {"name": "g", "arguments": "{}"},
    ]


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_emoji_cut_anywhere(house: House, engine: ScriptedEngine, size: int) -> None:
    """Pieces that end inside an event, or inside a character, change nothing that the client sees."""
    asks = {**ASK, **ALL}
    whole = b"".join(stream(asks, words=("😀", "é\u2028", "\U0001f469\u200d\U0001f680")).pieces)
    engine.then(Reply(pieces=tuple(whole[at : at + size] for at in range(0, len(whole), size))))
    body = await read(house)
    assert (
        "".join(part["choices"][0]["delta"]["content"] for part in chunks(body))
        == "😀é\u2028\U0001f469\u200d\U0001f680"
    )
    assert house.captured[0].integrity.complete


async def test_client_that_leaves_ends_the_generation(house: House, engine: ScriptedEngine) -> None:
    """The engine's connection is closed, and the part that came is one aborted event with its text."""
    asks = {**ASK, **ALL}
    engine.then(Reply(pieces=stream(asks).pieces[:3], hang=True))
    async with asked(house) as reply:
        await reply.content.readuntil(b"llo")
        reply.close()
    await asyncio.to_thread(until, engine.aborted.is_set)
    await asyncio.to_thread(until, lambda: house.captured)
    (event,) = house.captured
    assert (event.status, event.integrity.missing) == ("aborted", (*NOTHING, "stream_end"))
    assert text_of(event) == "hello"
    assert house.failed == []
    assert (await read(house)).endswith(DONE)
    assert 'end="client_disconnected"' in house.metrics.exposition().decode()


async def test_client_that_leaves_before_the_first_byte(house: House, engine: ScriptedEngine) -> None:
    """Nothing was sampled for anybody: a failed call, and the engine stops."""
    engine.then(Reply(hang=True))
    leaving = asyncio.ensure_future(read(house))
    await asyncio.to_thread(until, lambda: engine.requests)
    leaving.cancel()
    await asyncio.to_thread(until, engine.aborted.is_set)
    await asyncio.to_thread(until, lambda: house.failed)
    assert [failure.reason for failure in house.failed] == ["client_disconnected"]


async def test_broken_stream_is_broken_off(house: House, engine: ScriptedEngine) -> None:
    """An engine that dies on the way: an error event, no end, and the part stored as aborted."""
    engine.then(Reply(pieces=stream({**ASK, **ALL}).pieces[:3], reset=True))
    got = await read_broken(house)
    assert DONE not in got
    assert chunks(got)[-1]["error"]["code"] == "upstream_broken"
    (event,) = house.captured
    assert (event.status, event.integrity.missing) == ("aborted", (*NOTHING, "stream_end"))
    assert text_of(event) == "hello"
    assert (await read(house)).endswith(DONE)


@pytest.mark.parametrize("deadline", ["stream_idle_timeout_s", "stream_timeout_s"])
async def test_a_stream_that_stalls_is_broken_off(engine: ScriptedEngine, deadline: str) -> None:
    """Silence in the middle, or a stream without end, is a timeout: an error event for the client, what came is stored."""
    with House(**{deadline: 1.0}) as house:
        house.worker(engine.url)
        said = b"".join(GOOD[:3])  # at once: only what comes afterwards is late
        pings = 0 if deadline == "stream_idle_timeout_s" else 100
        replaced(engine, said, *[b": ping\n\n"] * pings, pace_s=0.05, hang=True)
        async with asyncio.timeout(PATIENCE_S):
            got = await read_broken(house)
        assert json.loads(got.split(b"\n\n")[-2][6:])["error"]["code"] == "upstream_timeout"
        assert DONE not in got
        (event,) = house.captured
        assert (event.status, event.integrity.missing) == ("aborted", (*NOTHING, "stream_end"))
        assert text_of(event) == "hello"
        assert b'claw_gateway_streams_total{end="upstream_timeout"} 1.0' in house.metrics.exposition()
        assert (await read(house)).endswith(DONE)


async def test_a_stream_longer_than_one_answer_may_take(engine: ScriptedEngine) -> None:
    """A stream that goes on is cut by neither the deadline of an answer nor that of silence."""
    with House(upstream_timeout_s=1.0, stream_idle_timeout_s=2.0) as house:
        house.worker(engine.url)
        replaced(engine, *GOOD[:3], *[b": ping\n\n"] * 45, *GOOD[3:], pace_s=0.05)
        assert (await read(house)).endswith(DONE)
        assert house.captured[0].integrity.complete
        engine.then(Reply(hang=True))
        async with asked(house) as reply:
            assert (reply.status, (await reply.json())["error"]["code"]) == (504, "upstream_timeout")


async def test_stream_without_an_end_is_broken_off(house: House, engine: ScriptedEngine) -> None:
    """A stream that ends properly as HTTP, but in the middle of a reply, is no reply."""
    engine.then(Reply(pieces=stream({**ASK, **ALL}).pieces[:2]))
    assert b"upstream_broken" in await read_broken(house)
    assert house.captured[0].status == "aborted"


async def test_end_without_done_is_an_end(house: House, engine: ScriptedEngine) -> None:
    """A provider that leaves [DONE] out, but finished every choice, is believed; our workers never do."""
    engine.then(Reply(pieces=GOOD[:-2]), Reply(pieces=GOOD[:-1]))
    assert await read(house) == b"".join(GOOD[:-2])
    assert (house.captured[0].status, house.captured[0].integrity.missing) == ("completed", NOTHING)
    assert b"upstream_broken" in await read_broken(house)


async def test_broken_before_the_first_byte_is_tried_again(house: House, engine: ScriptedEngine) -> None:
    """The client has seen nothing yet: another try is no lie. An engine that is away is waited for."""
    engine.then(Reply(reset=True), Reply(b"away", status=503), Reply(b"boom", status=500))
    assert (await read(house)).endswith(DONE)
    assert len(house.captured) == 1
    assert house.failed == []


async def test_refusals_and_whole_replies(house: House, engine: ScriptedEngine) -> None:
    """A 4xx reaches the client as for any call; so does an engine's whole reply to a request for a stream."""
    engine.then(Reply({"error": {"message": "no", "type": "t", "param": None, "code": 400}}, status=400))
    async with asked(house) as reply:
        assert (reply.status, (await reply.json())["error"]["message"]) == (400, "no")
    from tests.gateway.engine import completion

    engine.then(completion({**ASK, **ALL}))
    async with asked(house) as reply:
        assert reply.content_type == "application/json"
    assert house.captured[0].integrity.complete


GOOD = stream({**ASK, **ALL}).pieces
DEEP = b'data: {"choices":[{"index":0,"delta":{"content":%b%b}}]}\n\n'
STRANGE: list[tuple[str, tuple[bytes, ...], tuple[str, ...]]] = [
    ("invalid json", (*GOOD[:2], b"data: {oops\n\n", *GOOD[2:]), ("chunk_invalid",)),
    ("no object", (*GOOD[:2], b"data: 5\n\n", *GOOD[2:]), ("chunk_invalid",)),
    ("choices no list", (*GOOD[:2], b'data: {"choices":7}\n\n', *GOOD[2:]), ()),
    ("choice no object", (*GOOD[:2], b'data: {"choices":[7]}\n\n', *GOOD[2:]), ()),
    ("not utf-8", (*GOOD[:2], b"data: \xff\xfe\n\n", *GOOD[2:]), ("chunk_invalid",)),
    ("error", (*GOOD[:2], b'data: {"error":{"message":"x"}}\n\n', *GOOD[2:]), ("stream_error",)),
    ("no tokens", tuple(piece for piece in GOOD if piece[:1] != b":"), NOTHING),
    ("tokens that are none", (*GOOD[:-2], b": claw.tokens={oops\n\n", DONE), (*NOTHING, "tokens_invalid")),
    ("nested deeply", (*GOOD[:2], DEEP % (b"[" * 300, b"]" * 300), *GOOD[2:]), ("chunk_invalid",)),
    ("a delta nested deeply", (*GOOD[:2], DEEP % (b'{"a":' * 900 + b"1", b"}" * 900), *GOOD[2:]), ("chunk_invalid",)),
    ("nested without end", (*GOOD[:2], DEEP % (b"[" * 90_000, b"]" * 90_000), *GOOD[2:]), ("chunk_invalid",)),
    ("a finish reason that is no text", (*GOOD[:3], GOOD[3].replace(b'"stop"', rb'"\ud800"'), *GOOD[4:]), ()),
    ("keep-alive comments", (*GOOD[:2], b": ping\n\n", b"\n\n", b"event: x\n\n", *GOOD[2:]), ()),
    ("crlf", tuple(piece.replace(b"\n", b"\r\n") for piece in GOOD), ()),
    ("odd delta", (*GOOD[:2], chunk(asked=ALL, delta={"content": {"a": 1}}), *GOOD[2:]), ()),
]


@pytest.mark.parametrize(("pieces", "missing"), [row[1:] for row in STRANGE], ids=[row[0] for row in STRANGE])
async def test_strange_streams_are_stored_and_pass(
    house: House, engine: ScriptedEngine, pieces: tuple[bytes, ...], missing: tuple[str, ...]
) -> None:
    """Whatever an engine sends: the client gets it to its end, the log names what is wrong, nothing hangs."""
    replaced(engine, *pieces)
    async with asyncio.timeout(5):
        body = await read(house)
    assert b"[DONE]" in body[-20:]
    integrity = house.captured[0].integrity
    assert (integrity.complete, set(integrity.missing)) == (not missing, set(missing))


@pytest.mark.parametrize("piece", [b"", b"data: {}\n\n", b'data: {"choices":[]}\n\n', b"\n\n"])
async def test_streams_without_choices_are_failed_calls(house: House, engine: ScriptedEngine, piece: bytes) -> None:
    """A stream in which nothing was said is no captured call; the client sees what came."""
    replaced(engine, piece + DONE)
    assert (await read(house)).endswith(DONE)
    assert [failure.reason for failure in house.failed] == ["upstream_bad_reply"]
    assert house.captured == []


async def test_stream_over_its_limit_is_broken_off(engine: ScriptedEngine) -> None:
    """A stream, or one event, without end takes no memory without end."""
    with House(reply_bytes_max=20_000) as house:
        house.worker(engine.url)
        replaced(engine, *GOOD[:2], *[b"data: " + b"x" * 8000] * 20)
        assert b"upstream_reply_too_large" in await read_broken(house)
        assert house.captured[0].status == "aborted"


async def test_engine_that_never_ends_after_done(house: House, engine: ScriptedEngine) -> None:
    """[DONE] is the end, whatever the engine does with its connection."""
    replaced(engine, *GOOD, hang=True)
    async with asyncio.timeout(5):
        assert (await read(house)).endswith(DONE)
    assert house.captured[0].integrity.complete


async def test_streams_in_parallel_do_not_mix(house: House, engine: ScriptedEngine) -> None:
    """Under load each event has the tokens of its own stream."""

    def own(received: Received) -> Reply:
        handed_over = comment(generation(choice([received.json["seed"], 2, 3])))
        return Reply(pieces=(*stream(received.json).pieces[:-2], handed_over, DONE))

    engine.default = own
    await asyncio.gather(*(read(house, {**ASK, "seed": 100 + number}) for number in range(32)))
    assert sorted(unpack_ids(event.response_ids)[0] for event in house.captured) == list(range(100, 132))
    assert all(event.integrity.complete for event in house.captured)


async def test_failed_stream_and_its_retry_are_one_call(house: House, engine: ScriptedEngine) -> None:
    """The next attempt under the same key has the same call id and the next number."""
    engine.then(Reply(pieces=GOOD[:3], reset=True))
    await read_broken(house, idempotency_key="k")
    assert (await read(house, idempotency_key="k")).endswith(DONE)
    first, second = house.captured
    assert (first.call_id, first.attempt, first.status) == (second.call_id, 0, "aborted")
    assert (second.attempt, second.status) == (1, "completed")


async def test_everything_in_a_request_passes(house: House, engine: ScriptedEngine) -> None:
    """Images, stop strings, tools and unknown fields reach the engine of a stream as the client wrote them."""
    asks = {
        **ASK,
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}
        ],
        "stop": ["\n", "é"],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "stream_options": {"include_usage": True, "unknown": 1.10},
        "vendor": {"x": [None]},
    }
    await read(house, asks)
    (received,) = engine.requests
    assert received.json == asks
    assert chunks(await read(house, asks))[-1]["usage"]["completion_tokens"] == 3


def _raw(house: House) -> socket.socket:
    connection = socket.create_connection(house.url.removeprefix("http://").split(":"), timeout=5)  # type: ignore[arg-type]  # a wrong or a partial argument is the case
    body = json.dumps(ASK).encode()
    connection.sendall(
        b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%s" % (PATH.encode(), len(body), body)
    )
    return connection


def _until_closed(connection: socket.socket) -> bytes:
    got = b""
    while piece := connection.recv(65536):
        got += piece
    return got


def _until_end(connection: socket.socket) -> bytes:
    got = bytearray()
    while not got.endswith(b"0\r\n\r\n"):
        piece = connection.recv(1 << 20)
        assert piece, "the connection was closed before the end"
        got += piece
    return bytes(got)


def test_raw_socket_sees_no_end_of_a_broken_stream(house: House, engine: ScriptedEngine) -> None:
    """On the wire: a broken stream has an error event, no last chunk, and a closed connection."""
    engine.then(Reply(pieces=GOOD[:3], reset=True))
    with _raw(house) as connection:
        got = _until_closed(connection)
    assert b'"error"' in got
    assert not got.endswith(b"0\r\n\r\n")


def test_raw_socket_gets_the_end_and_keeps_its_connection(house: House) -> None:
    """On the wire: an acknowledged stream ends with [DONE] and the last chunk, and the connection lives on."""
    with _raw(house) as connection:
        got = _until_end(connection)
        assert DONE in got
        assert len(house.captured) == 1
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"200" in connection.recv(65536)


def test_reset_of_a_clients_socket_stops_the_engine(house: House, engine: ScriptedEngine) -> None:
    """A client that dies without a word is one that left."""
    engine.then(Reply(pieces=GOOD[:3], hang=True))
    connection = _raw(house)
    connection.recv(65536)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    until(engine.aborted.is_set)
    until(lambda: house.captured)
    assert house.captured[0].status == "aborted"


def test_slow_reader_gets_all_of_it(house: House, engine: ScriptedEngine) -> None:
    """A client that reads late slows its engine down and loses nothing; others are served meanwhile."""
    words = tuple("x" * 20_000 for _ in range(400))
    engine.then(stream({**ASK, **ALL}, words=words))
    with _raw(house) as connection:
        until(lambda: engine.requests)
        with _raw(house) as other:
            assert DONE in _until_end(other)
        slow = _until_end(connection)
    assert slow.count(b'"content":"xxx') == len(words)
    until(lambda: len(house.captured) == 2)

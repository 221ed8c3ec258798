"""The promises of a call, in every protocol that is served: exact, durable before its end, broken off and never cut short."""

import asyncio
import json

import pytest

from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from claw_r1.schemas.http import TOKENS_HEADER
from tests.gateway.capture.test_stream import asked, read, read_broken
from tests.gateway.engine import Reply, ScriptedEngine, whole
from tests.gateway.house import House, ask
from tests.gateway.packed import IDS, LOGPROBS, PROMPT, choice, comment, generation
from tests.gateway.speaking import ANTHROPIC, CHAT, COMPLETIONS, SPEAKING, Spoken, answer
from tests.patience import until

pytestmark = pytest.mark.parametrize("spoken", SPEAKING, ids=[spoken.name for spoken in SPEAKING])


@pytest.fixture
def house(speaking_house: House) -> House:
    """A gateway whose worker speaks every protocol."""
    return speaking_house


def streamed(spoken: Spoken) -> dict[str, object]:
    return {**spoken.ask, "stream": True}


@pytest.mark.parametrize("size", [0, 1, 7, 10_000])
async def test_the_engines_bytes_and_all_of_its_tokens(
    house: House, engine: ScriptedEngine, spoken: Spoken, size: int
) -> None:
    """Whole (0), or in pieces of any size: the client has what the engine wrote, the log tokens and the same reply."""
    raw = b"".join(spoken.pieces())
    if size:
        engine.then(Reply(pieces=tuple(raw[at : at + size] for at in range(0, len(raw), size))))
    reply = await ask(house, streamed(spoken) if size else spoken.ask, spoken.path)
    assert reply.body == (spoken.sent if size else json.dumps(spoken.body, separators=(",", ":")).encode())
    (call,) = house.captured
    assert (unpack_ids(call.prompt.suffix), unpack_ids(call.response_ids)) == (PROMPT, IDS)
    assert (unpack_floats(call.response_logprobs), [span.version for span in call.spans]) == (LOGPROBS, [3])
    assert (call.protocol, call.status, call.finish_reason) == (spoken.name, "completed", "stop")
    assert (call.integrity.missing, json.loads(call.response_body)) == ((), spoken.body)
    assert (call.timings.first_token_us is not None) is bool(size)
    assert json.loads(engine.requests[0].body) == (streamed(spoken) if size else spoken.ask)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_its_engine_cut_off_is_captured_so(
    house: House, engine: ScriptedEngine, spoken: Spoken, stream: bool
) -> None:
    """The event says `length`, whatever word the reply has: vLLM calls a whole one with a tool call `tool_calls`."""
    cut = generation(choice(finish="length"))
    pieces = (*spoken.begun, comment(cut), *spoken.tail, spoken.last)
    engine.then(Reply(pieces=pieces) if stream else whole(spoken.body, cut))
    reply = await ask(house, streamed(spoken) if stream else spoken.ask, spoken.path)
    assert reply.body == spoken.sent if stream else reply.json == spoken.body
    (call,) = house.captured
    assert (call.status, call.finish_reason) == ("completed", "length")


async def test_the_end_of_a_stream_comes_after_the_acknowledgement(
    house: House, engine: ScriptedEngine, spoken: Spoken
) -> None:
    """Instead of an end there is an error; the retry gets the whole of what was sampled first, once it is stored."""
    house.log.refusing = True
    heard = await read_broken(house, streamed(spoken), spoken.path, idempotency_key="k")
    assert spoken.last not in heard
    assert spoken.unacknowledged in heard
    assert heard.startswith(b"".join((*spoken.begun, *spoken.tail)))
    assert house.captured == []
    house.log.refusing = False
    assert await read(house, streamed(spoken), spoken.path, idempotency_key="k") == spoken.sent
    assert len(engine.requests) == len(house.captured) == 1


async def test_a_whole_reply_comes_after_the_acknowledgement(house: House, spoken: Spoken) -> None:
    """Instead, a refusal that clients wait after, in their shape."""
    house.log.refusing = True
    reply = await ask(house, spoken.ask, spoken.path)
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert "send it again" in reply.json["error"]["message"]
    assert ("type" in reply.json) is (spoken is ANTHROPIC)
    house.log.refusing = False
    assert (await ask(house, spoken.ask, spoken.path)).json == spoken.body


@pytest.mark.parametrize("ends", ["reset", "ended", "all but the end"])
async def test_a_stream_without_its_end_is_broken_off(
    house: House, engine: ScriptedEngine, spoken: Spoken, ends: str
) -> None:
    """An engine that dies, or closes properly too early: an error for the client, the part stored as aborted."""
    begun = spoken.begun[:1] if spoken in (CHAT, COMPLETIONS) else spoken.begun[:3]
    pieces = spoken.pieces()[:-1] if ends == "all but the end" else begun
    engine.then(Reply(pieces=pieces, reset=ends == "reset"))
    heard = await read_broken(house, streamed(spoken), spoken.path)
    assert spoken.last not in heard
    assert b'"error"' in heard.rpartition(b"data: ")[2]
    (call,) = house.captured
    assert (call.status, "stream_end" in call.integrity.missing) == ("aborted", True)
    assert b"he" in call.response_body
    assert unpack_ids(call.response_ids) == (IDS if ends == "all but the end" else [])


async def test_a_client_that_leaves_ends_the_generation(house: House, engine: ScriptedEngine, spoken: Spoken) -> None:
    """What came is stored as aborted, and the next call is served."""
    engine.then(Reply(pieces=spoken.begun, hang=True))
    async with asked(house, streamed(spoken), spoken.path) as reply:
        await reply.content.readany()
        reply.close()
    await asyncio.to_thread(until, engine.aborted.is_set)
    await asyncio.to_thread(until, lambda: house.captured or house.failed)
    assert {call.status for call in house.captured} <= {"aborted"}
    assert await read(house, streamed(spoken), spoken.path) == spoken.sent


async def test_an_engine_that_goes_on_after_the_end(house: House, engine: ScriptedEngine, spoken: Spoken) -> None:
    """What follows the last event waits with it, and is the client's in the end."""
    more = b": bye\n\ndata: [DONE]\n\n"
    engine.then(Reply(pieces=(*spoken.pieces(), more)))
    assert (await read(house, streamed(spoken), spoken.path)).removesuffix(more) == spoken.sent
    assert house.captured[0].integrity.complete


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fixed_upstream_that_hands_its_tokens_over_is_believed(
    engine: ScriptedEngine, spoken: Spoken, stream: bool
) -> None:
    """Every engine is asked, in whatever protocol: a worker of ours behind --upstream is trained on."""
    engine.default = answer
    with House(upstreams=engine.url) as house:
        reply = await ask(house, {**spoken.ask, "stream": stream}, spoken.path)
        assert reply.body == (spoken.sent if stream else json.dumps(spoken.body, separators=(",", ":")).encode())
        assert engine.requests[0].headers[TOKENS_HEADER] == "1"
        (call,) = house.captured
        assert (call.integrity.missing, call.worker_id, json.loads(call.response_body)) == ((), None, spoken.body)
        assert (unpack_ids(call.prompt.suffix), unpack_ids(call.response_ids)) == (PROMPT, IDS)
        assert (unpack_floats(call.response_logprobs), [span.version for span in call.spans]) == (LOGPROBS, [3])


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_without_tokens_is_served(engine: ScriptedEngine, spoken: Spoken, stream: bool) -> None:
    """A provider: the client has its reply, the log has it too; what is not told is named."""
    engine.then(spoken.reply(stream=stream, hands_over=False))
    with House(upstreams=engine.url) as house:
        reply = await ask(house, {**spoken.ask, "stream": stream}, spoken.path)
        assert reply.body == spoken.sent if stream else reply.json == spoken.body
        (call,) = house.captured
        assert "token_ids" in call.integrity.missing
        assert json.loads(call.response_body) == spoken.body

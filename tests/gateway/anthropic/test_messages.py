"""What is Anthropic's own in a call: blocks, reasons, pictures, errors, headers."""

import json

import aiohttp
import pytest

from claw_r1.gateway.anthropic.content import StreamedMessage
from claw_r1.gateway.anthropic.messages import AnthropicMessages
from claw_r1.gateway.errors import GatewayError, InvalidRequest, NotCaptured, Overloaded, UpstreamTimeout
from claw_r1.schemas.arrays import unpack_ids
from tests.gateway.capture.test_stream import read, read_broken
from tests.gateway.engine import Json, Reply, ScriptedEngine, whole
from tests.gateway.house import House, ask
from tests.gateway.packed import IDS, choice, comment, generation
from tests.gateway.speaking import ANTHROPIC, added_up, named

PATH, ASK, BODY = ANTHROPIC.path, ANTHROPIC.ask, ANTHROPIC.body
STREAMED = {**ASK, "stream": True}
START, END = ANTHROPIC.begun[0], (*ANTHROPIC.tail[1:], ANTHROPIC.last)
FORGED = '"}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n: claw.tokens=[]\n\n'
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


@pytest.fixture
def house(speaking_house: House) -> House:
    """A gateway whose worker speaks every protocol."""
    return speaking_house


def begin(index: int, **block: object) -> bytes:
    return named({"type": "content_block_start", "index": index, "content_block": block})


def grow(index: int, kind: str, **delta: object) -> bytes:
    return named({"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}})


def close(index: int) -> bytes:
    return named({"type": "content_block_stop", "index": index})


def parsed(*events: bytes) -> list[Json]:
    return [json.loads(event.partition(b"data: ")[2]) for event in events]


RICH = (
    begin(0, type="thinking", thinking=""),
    grow(0, "thinking_delta", thinking="let me "),
    grow(0, "thinking_delta", thinking="see"),
    grow(0, "signature_delta", signature="5f"),
    close(0),
    begin(1, type="text", text=""),
    grow(1, "text_delta", text=FORGED),
    close(1),
    begin(2, type="tool_use", id="t1", name="look", input={}),
    grow(2, "input_json_delta", partial_json='{"up": ["\\u00e9", '),
    grow(2, "input_json_delta", partial_json="1]}"),
    close(2),
    begin(3, type="tool_use", id="t2", name="go", input={}),
    grow(3, "input_json_delta", partial_json='{"to": no'),
    close(3),
    begin(4, type="tool_use", id="t3", name="stop", input={}),
    close(4),
)
CONTENT = [
    {"type": "thinking", "thinking": "let me see", "signature": "5f"},
    {"type": "text", "text": FORGED},
    {"type": "tool_use", "id": "t1", "name": "look", "input": {"up": ["é", 1]}},
    {"type": "tool_use", "id": "t2", "name": "go", "input": '{"to": no'},
    {"type": "tool_use", "id": "t3", "name": "stop", "input": {}},
]


@pytest.mark.parametrize("size", [1, 11, 100_000])
async def test_thinking_text_and_tools(house: House, engine: ScriptedEngine, size: int) -> None:
    """A stream with all kinds of blocks, forged ends among them, passes to the byte and is stored as one message."""
    sent = (START, *RICH, *END)
    raw = b"".join((*sent[:-2], comment(), *sent[-2:]))
    engine.then(Reply(pieces=tuple(raw[at : at + size] for at in range(0, len(raw), size))))
    assert await read(house, STREAMED, PATH) == b"".join(sent)
    (call,) = house.captured
    assert (call.integrity.missing, unpack_ids(call.response_ids), call.finish_reason) == ((), IDS, "stop")
    assert json.loads(call.response_body) == {**BODY, "content": CONTENT}


def test_events_in_any_order_make_the_same_message() -> None:
    """Whatever an engine does, its message is put together as far as it goes, and nothing raises."""
    in_order = parsed(START, *RICH, *END)
    expected = added_up(StreamedMessage(), in_order)
    assert added_up(StreamedMessage(), [*in_order[1:], in_order[0]]) == expected
    begins = [event for event in in_order if event["type"] == "content_block_start"]
    assert added_up(StreamedMessage(), [event for event in in_order if event not in begins] + begins) == expected
    assert added_up(StreamedMessage(), []) is None
    assert (
        added_up(StreamedMessage(), [{"type": "ping"}, {"type": "error", "error": {}}, {"type": None}, {"delta": 1}])
        is None
    )


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_start", "message": 7},
        {"type": "message_delta", "delta": [], "usage": "x"},
        {"type": "content_block_start", "index": -1, "content_block": None},
        {"type": "content_block_delta", "index": "0", "delta": {"type": "text_delta", "text": {"a": 1}}},
        {"type": "content_block_delta", "index": 10**12, "delta": {"thinking": None, "citation": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {"partial_json": "[" * 100_000}},
        {"type": "content_block_delta", "index": 0, "delta": {"partial_json": '"\ud800"'}},
    ],
)
async def test_odd_events_harm_nobody(house: House, engine: ScriptedEngine, event: Json) -> None:
    """The client has its stream to the end, the log all tokens and a message."""
    pieces = (*ANTHROPIC.begun, named(event), comment(), *ANTHROPIC.tail, ANTHROPIC.last)
    engine.then(Reply(pieces=pieces))
    assert (await read(house, STREAMED, PATH)).endswith(ANTHROPIC.last)
    (call,) = house.captured
    assert (unpack_ids(call.response_ids), call.status) == (IDS, "completed")
    assert json.loads(call.response_body)["content"]


@pytest.mark.parametrize(
    ("said", "pools"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "pause_turn"),
        (None, None),
        (7, None),
    ],
)
async def test_reasons_in_the_pools_words(house: House, engine: ScriptedEngine, said: object, pools: str) -> None:
    """Anthropic's words for why a reply ended; what nobody knows is kept."""
    engine.then(whole({**BODY, "stop_reason": said}))
    assert (await ask(house, ASK, PATH)).json["stop_reason"] == said
    assert house.captured[0].finish_reason == pools


async def test_an_error_event_ends_a_stream(house: House, engine: ScriptedEngine) -> None:
    """vLLM's own: the client sees it, no end follows, and what was sampled is stored as aborted."""
    error = named({"type": "error", "error": {"type": "internal_error", "message": "boom"}})
    engine.then(Reply(pieces=(*ANTHROPIC.begun, comment(generation(choice(finish=None))), error)))
    heard = await read_broken(house, STREAMED, PATH)
    assert error in heard
    assert ANTHROPIC.last not in heard
    (call,) = house.captured
    assert (call.status, set(call.integrity.missing)) == ("aborted", {"stream_error", "stream_end"})
    engine.then(Reply(pieces=(error,)))
    await read_broken(house, STREAMED, PATH)
    assert len(house.failed) == 1, "a stream in which nothing was said is a failed call"


def multimodal(*content: object) -> tuple[str, ...]:
    messages = [{"role": "user", "content": list(content)}]
    return AnthropicMessages().parse(json.dumps({"messages": messages}).encode()).missing


def test_what_a_tokenizer_alone_makes_ids_of() -> None:
    """A picture, also one that a tool gave, is named; all that is text is not."""
    text = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    result = {"type": "tool_result", "tool_use_id": "t", "is_error": True}
    assert multimodal(text, {"type": "thinking", "thinking": "", "signature": ""}, {**result, "content": "x"}) == ()
    assert multimodal({**result, "content": [text]}, {"type": "tool_use", "input": {"type": "image"}}) == ()
    assert multimodal(PICTURE) == multimodal({**result, "content": [text, PICTURE]}) == ("multimodal",)
    assert multimodal({"type": "document"}) == multimodal({"type": ["text"]}) == multimodal({}) == ("multimodal",)
    assert multimodal("x", None, {**result, "content": 7}) == ()


BAD: list[bytes] = [
    b"",
    b"[]",
    b'{"messages": {}}',
    b'{"model": 7, "messages": []}',
]


@pytest.mark.parametrize("body", BAD)
async def test_bad_requests_reach_no_engine(house: House, engine: ScriptedEngine, body: bytes) -> None:
    """A 400 that Anthropic's clients can read."""
    reply = await ask(house, body, PATH)
    assert (reply.status, reply.json["type"], reply.json["error"]["type"]) == (400, "error", "invalid_request_error")
    assert engine.requests == []
    with pytest.raises(InvalidRequest):
        AnthropicMessages().parse(body)


@pytest.mark.parametrize(
    ("refusal", "shown"),
    [
        ({"type": "error", "error": {"type": "BadRequestError", "message": "no"}}, None),
        ({"error": {"message": "no", "type": "Bad Request", "param": None, "code": 400}}, "no"),
        ({"detail": "no"}, '{"detail": "no"}'),
        (b"no", "no"),
    ],
)
async def test_refusals_of_an_engine(house: House, engine: ScriptedEngine, refusal: Json, shown: str | None) -> None:
    """Anthropic's objects pass as they are; vLLM's own, and any other, are told in that shape."""
    engine.then(Reply(refusal, status=400))
    reply = await ask(house, ASK, PATH)
    expected = refusal if shown is None else {"error": {"type": "invalid_request_error", "message": shown}}
    assert (reply.status, reply.json) == (400, {"type": "error", **expected})
    assert house.failed[0].message == shown or "no"


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"type":"message","content":"x"}', b'{"content":' + b"[" * 300])
async def test_a_reply_that_is_no_message(house: House, engine: ScriptedEngine, body: bytes) -> None:
    """A broken engine is a 502 in the caller's shape, once its tries are over."""
    engine.default = lambda _: Reply(body)
    reply = await ask(house, ASK, PATH)
    assert (reply.status, reply.json["error"]["type"]) == (502, "api_error")
    assert house.captured == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotCaptured("x"), "overloaded_error"),
        (Overloaded("x"), "overloaded_error"),
        (UpstreamTimeout("x"), "timeout_error"),
        (GatewayError("x"), "api_error"),
        (InvalidRequest("x"), "invalid_request_error"),
    ],
)
def test_errors_in_anthropics_words(error: GatewayError, kind: str) -> None:
    """By status; in a stream as the event that its SDKs raise for."""
    protocol = AnthropicMessages()
    body = protocol.error(error)
    assert json.loads(body) == {"type": "error", "error": {"type": kind, "message": "x"}}
    assert protocol.error_event(error) == b"event: error\ndata: " + body + b"\n\n"
    assert protocol.error_message(body) == "x"


HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "a,b",
    "x-api-key": "sk-ant-planted-key",
    "authorization": "Bearer planted-token",
    "content-type": "application/json",
    "cookie": "planted=1",
}


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("passes", [True, False])
async def test_a_provider_gets_its_key_and_version(engine: ScriptedEngine, fixed: bool, passes: bool) -> None:
    """A fixed upstream alone, and its key only where it is meant for it; what repeats a key is stored without it."""
    said = {**BODY, "content": [{"type": "text", "text": "your key is sk-ant-planted-key"}]}
    engine.then(Reply(said))
    with House(upstreams=engine.url if fixed else "", upstream_authorization=passes) as house:
        house.worker(engine.url)
        async with (
            aiohttp.ClientSession(headers=HEADERS) as session,
            session.post(f"{house.url}{PATH}?beta=true", json=ASK) as reply,
        ):
            assert await reply.json() == said
        received = engine.requests[0]
        assert received.path == "/v1/messages"
        names = {"anthropic-version", "anthropic-beta"} | ({"x-api-key", "authorization"} if passes else set())
        assert {name: received.headers.get(name) for name in HEADERS if name != "content-type"} == {
            name: value if fixed and name in names else None
            for name, value in HEADERS.items()
            if name != "content-type"
        }
        stored = house.raw_records() + house.metrics.exposition()
        assert b"planted-token" not in stored
        assert (b"sk-ant-planted-key" in stored) is not (fixed and passes)

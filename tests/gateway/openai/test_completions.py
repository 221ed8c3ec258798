"""Completions by token ids through the gateway: what the client sees, what the engine sees, what the log holds."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import orjson
import pytest

from claw_r1.datapool.view.conversations import CallBodies, conversation
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from claw_r1.schemas.events import VersionSpan
from claw_r1.schemas.http import TOKENS_HEADER
from tests.gateway.engine import Json, Received, Reply, ScriptedEngine, whole
from tests.gateway.house import House, ask
from tests.gateway.packed import choice, comment, generation
from tests.lazy_modules import lazy_module

if TYPE_CHECKING:
    import openai
else:
    openai = lazy_module("openai")

PROMPT = [1, 5, 6, 7]
ASK: Json = {"model": "tiny", "prompt": PROMPT}
PATH = "/t1/g1/v1/completions"
WORDS = ("he", 'l\\"lo', "\U0001f600")
IDS = [11, 12, 2]
WISHES: list[Json] = [
    {},
    {"logprobs": 0},
    {"logprobs": 2, "return_token_ids": True},
    {"return_token_ids": True},
    {"logprobs": None, "return_token_ids": False},
    {"n": 2},
]


def part(fields: Json, index: int, at: slice, **more: object) -> Json:
    """One choice with these tokens, in a chunk or a reply; vLLM names ids and log-probabilities asked for or not."""
    words, ids = WORDS[at], IDS[at]
    logprobs = {
        "text_offset": [0] * len(ids),
        "token_logprobs": [-0.5 - index] * len(ids),
        "tokens": list(words),
        "top_logprobs": [{word: -0.5, "}": -1.5} for word in words],
    }
    by_ids = fields.get("return_token_ids")
    return {
        "index": index,
        "text": "".join(words),
        "logprobs": logprobs if fields.get("logprobs") is not None else None,
        **more,
        "token_ids": ids if by_ids else None,
        "prompt_token_ids": fields["prompt"] if by_ids and not at.start else None,
    }


def answer(received: Received) -> Reply:
    """As a worker that hands tokens over, if it is asked to."""
    fields, plain = received.json, answered(received.json)
    if TOKENS_HEADER not in received.headers:
        return plain
    sampled = [choice(IDS, [-0.5 - index] * 3) for index in range(fields.get("n") or 1)]
    tokens = generation(*sampled, prompt=fields["prompt"], temperature=fields.get("temperature", 1.0))
    if not plain.pieces:
        return whole(plain.body, tokens)
    return Reply(pieces=(*plain.pieces[:-1], comment(tokens), plain.pieces[-1]))


def answered(fields: Json) -> Reply:
    """The reply of vLLM alone, streamed where the request says so."""
    choices = range(fields.get("n") or 1)
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "tiny"}
    if not fields.get("stream"):
        listed = [part(fields, index, slice(0, None), finish_reason="stop") for index in choices]
        usage = {"prompt_tokens": 4, "completion_tokens": len(IDS) * len(choices), "total_tokens": 9}
        body = orjson.dumps({**head, "choices": listed, "usage": usage})
        return Reply(body)
    chunks = [
        {**head, "choices": [part(fields, index, slice(at, at + 1), finish_reason="stop" if at == 2 else None)]}
        for at in range(3)
        for index in choices
    ]
    events = [b"data: %b\n\n" % orjson.dumps(chunk) for chunk in chunks]
    return Reply(pieces=(*events, b"data: [DONE]\n\n"))


@pytest.fixture
def house(engine: ScriptedEngine) -> Iterator[House]:
    engine.default = answer
    with House() as running:
        running.worker(engine.url)
        yield running


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wishes", WISHES)
async def test_client_sees_what_the_engine_would_have_sent(house: House, wishes: Json, streamed: bool) -> None:
    """Byte for byte, whatever it asked for; the log has ids, log-probabilities and versions all the same."""
    body = {**ASK, **wishes, "stream": streamed}
    reply = await ask(house, body, PATH)
    direct = answered(body)
    assert reply.body == (b"".join(direct.pieces) if streamed else direct.body)
    for number, event in enumerate(house.captured):
        assert event.integrity.complete, event.integrity
        assert unpack_ids(event.prompt.suffix) == PROMPT
        assert (unpack_ids(event.response_ids), unpack_floats(event.response_logprobs)) == (IDS, [-0.5 - number] * 3)
        assert event.spans == (VersionSpan(run_id="run", version=3, start=0, end=3),)
        assert (event.finish_reason, event.status, event.usage.completion_tokens) == ("stop", "completed", 3)
        alone = answered({**body, "stream": False}).body
        (sampled,) = orjson.loads(event.response_body)["choices"]
        assert sampled == orjson.loads(alone)["choices"][number]  # type: ignore[arg-type]  # a wrong or a partial argument is the case
    assert len(house.captured) == wishes.get("n", 1)


@pytest.mark.parametrize(("change", "param"), [({"model": 3}, "model")])
async def test_what_no_engine_takes_is_refused(house: House, engine: ScriptedEngine, change: Json, param: str) -> None:
    """In OpenAI's shape, with the field at fault, before an engine or the log sees it."""
    reply = await ask(house, {**ASK, **change}, PATH)
    assert (reply.status, reply.json["error"]["param"]) == (400, param)
    assert (engine.requests, house.captured) == ([], [])


async def test_a_broken_stream_is_stored_as_far_as_it_came(house: House, engine: ScriptedEngine) -> None:
    """Its text up to there, named as aborted."""
    pieces = answered({**ASK, "stream": True}).pieces
    engine.then(Reply(pieces=pieces[:2]))
    with openai.OpenAI(base_url=f"{house.url}/t/g", api_key="x", max_retries=0) as client:
        stream = client.completions.create(model="tiny", prompt=PROMPT, stream=True)
        with pytest.raises(openai.APIError, match="ended before its end"):
            list(stream)
    (event,) = house.captured
    assert (event.status, orjson.loads(event.response_body)["choices"][0]["text"]) == ("aborted", "".join(WORDS[:2]))
    assert {"token_ids", "stream_end"} <= set(event.integrity.missing)


async def test_growing_prompts_are_written_as_deltas_and_read_as_a_conversation(house: House) -> None:
    """A prompt that goes on from prompt and response is their reference and its new ids; the replies are its text."""
    await ask(house, ASK, PATH)
    await ask(house, {**ASK, "prompt": [*PROMPT, *IDS, 40, 41]}, PATH)
    first, second = house.captured
    assert (second.prompt.base_call_id, second.prompt.keep) == (first.call_id, 7)
    turns = conversation(CallBodies.of(event, event.request.suffix) for event in house.captured)
    assert turns == [{"role": "assistant", "content": "".join(WORDS), "reasoning": None}] * 2


async def test_a_repeated_key_gets_the_captured_reply(house: House, engine: ScriptedEngine) -> None:
    """As for chat: nothing is generated again."""
    first, again = [await ask(house, ASK, PATH, idempotency_key="k") for _ in range(2)]
    assert first.body == again.body
    assert len(engine.requests) == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_provider_without_ids_is_passed_through(engine: ScriptedEngine, streamed: bool) -> None:
    """It ignores the header by which it is asked: its bytes are the client's, and the call is stored with what is missing."""
    engine.default = lambda received: answered(received.json)
    body = {**ASK, "prompt": "Say.", "stream": streamed}
    with House(upstreams=[engine.url]) as house:
        reply = await ask(house, body, PATH)
    direct = answered(body)
    own = b"".join(direct.pieces) if streamed else direct.body
    assert (reply.body, engine.requests[0].json) == (own, body)
    (event,) = house.captured
    assert {"prompt_ids", "token_ids"} <= set(event.integrity.missing)
    assert orjson.loads(event.response_body)["choices"][0]["text"] == "".join(WORDS)


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        ("words", ()),
        ([{"type": "text", "text": "words"}], ()),
        ([{"type": "text", "text": "look"}, PICTURE], ("multimodal",)),
        ([{"image_url": "data:image/png;base64,AA"}], ("multimodal",)),
        ([{"type": ["text"]}], ("multimodal",)),
        ([{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}], ("multimodal",)),
    ],
)
async def test_what_is_not_text_passes_and_is_named(
    engine: ScriptedEngine, content: object, missing: tuple[str, ...]
) -> None:
    """Images reach the engine and the log as they are; the call is stored with the reason that keeps it from training."""
    with House() as house:
        house.worker(engine.url)
        body = {"model": "tiny", "messages": [{"role": "user", "content": content}, {"role": "user", "content": "hi"}]}
        assert (await ask(house, body)).status == 200
        (event,) = house.captured
        assert (event.integrity.missing, event.integrity.complete) == (missing, not missing)
        assert engine.requests[0].json["messages"] == body["messages"]
        assert json.loads(event.request.suffix) == body

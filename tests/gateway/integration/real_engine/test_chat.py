"""The gateway before a real vLLM: what the scripted engine pretends, checked against the engine itself."""

import asyncio
import urllib.request
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from claw_r1.datapool.delta_decoding import bodies, prompts
from claw_r1.schemas.arrays import count, unpack_floats, unpack_ids
from claw_r1.schemas.events import VersionSpan
from tests.gateway.engine import Json
from tests.gateway.house import House
from tests.gateway.raw import say
from tests.lazy_modules import lazy_module
from tests.patience import until

if TYPE_CHECKING:
    import openai
else:
    openai = lazy_module("openai")

SPEECH: Any = [{"role": "user", "content": "Say something."}]


@pytest.mark.vllm
@pytest.mark.slow
async def test_real_tokens_are_captured_whole(real: House) -> None:
    """n = 2 of a real engine: ids, finite log-probabilities and exact versions for each choice; prompt ids shared."""
    async with openai.AsyncOpenAI(base_url=f"{real.url}/t/g", api_key="x") as client:
        reply = await client.chat.completions.create(
            model="policy",
            messages=SPEECH,
            n=2,
            max_tokens=12,
            temperature=0.9,
        )
    assert [choice.logprobs for choice in reply.choices] == [None, None]
    assert reply.model_extra is not None
    assert reply.model_extra.get("prompt_token_ids") is None
    first, second = real.captured
    assert second.call_id == f"{first.call_id}.1"
    assert first.prompt.full_length == reply.usage.prompt_tokens > 0  # type: ignore[union-attr]  # the kind that this test makes has it
    for event in (first, second):
        assert event.integrity.complete, event.integrity
        length = len(unpack_ids(event.response_ids))
        assert 0 < length <= 12
        assert all(value <= 0 for value in unpack_floats(event.response_logprobs))
        assert event.spans == (VersionSpan(run_id="run", version=7, start=0, end=length),)
        assert event.usage.completion_tokens == length
        assert event.sampling.temperature == 0.9


@pytest.fixture(scope="session")
def asks(vllm: str) -> dict[str, Json]:
    """Greedy requests, each with something in it that changes what the engine sends."""
    plain: Json = {"model": "policy", "messages": SPEECH, "max_tokens": 12, "temperature": 0}
    text = post(vllm, plain)["choices"][0]["message"]["content"]
    look = {"name": "look", "parameters": {"type": "object", "properties": {"up": {"enum": ["a", "b"]}}}}
    return {
        "plain": plain,
        "usage": {**plain, "stream_options": {"include_usage": True}},
        "log-probabilities": {**plain, "logprobs": True, "top_logprobs": 2},
        "token ids": {**plain, "return_token_ids": True},
        "ids and log-probabilities": {**plain, "return_token_ids": True, "logprobs": True},
        "a stop string": {**plain, "stop": [text[2:5]]},
        "a tool call": {  # forced: the tiny model makes a call with arguments that are no JSON, and streams them
            **plain,
            "max_tokens": 60,
            "tools": [{"type": "function", "function": look}],
            "tool_choice": {"type": "function", "function": {"name": "look"}},
        },
    }


NAMES = (
    "plain",
    "usage",
    "log-probabilities",
    "token ids",
    "ids and log-probabilities",
    "a stop string",
    "a tool call",
)


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "usage"])
def test_client_sees_what_the_engine_sent(real: House, vllm: str, asks: dict[str, Json], name: str) -> None:
    """Direct or through the gateway: the same reply, apart from its id and time."""
    direct, through = (post(url, asks[name]) for url in (vllm, f"{real.url}/t/g"))
    (event,) = real.captured
    assert event.integrity.complete, event.integrity
    assert count(event.response_ids) == direct["usage"]["completion_tokens"]
    assert lasting(through) == lasting(direct)


@pytest.mark.vllm
@pytest.mark.slow
async def test_real_refusals_reach_the_client(real: House) -> None:
    """What vLLM refuses comes back as vLLM said it."""
    async with openai.AsyncOpenAI(base_url=f"{real.url}/t/g", api_key="x", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="policy", messages=SPEECH, temperature=-1)
    assert "temperature" in str(refused.value)
    assert [failure.reason for failure in real.failed] == ["refused"]


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_real_streams_are_the_engines_bytes(real: House, vllm: str, asks: dict[str, Json], name: str) -> None:
    """Direct or through the gateway: the same words in the same kinds of events.

    Byte for byte is checked with the scripted engine: this one decides by the clock how many tokens a chunk holds.
    """
    ask = {**asks[name], "stream": True}
    direct, through = (events(post_stream(url, ask)) for url in (vllm, f"{real.url}/t/g"))
    assert through.pop() == direct.pop() == b"[DONE]"
    sent = [lasting(chunk) for chunk in direct]
    words, kinds, of_words = said([lasting(chunk) for chunk in through])
    sent_words, sent_kinds, sent_of_words = said(sent)
    assert (words, kinds) == (sent_words, sent_kinds)
    assert of_words == sent_of_words or not (of_words and sent_of_words)
    (event,) = real.captured
    assert event.integrity.complete, event.integrity
    assert event.spans == (VersionSpan(run_id="run", version=7, start=0, end=count(event.response_ids)),)
    assert event.usage.completion_tokens == count(event.response_ids) > 0


def post(url: str, ask: Json) -> Json:
    """The parsed reply of the engine, or of the gateway."""
    reply: Json = orjson.loads(post_stream(url, ask))
    return reply


def post_stream(url: str, ask: Json) -> bytes:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", orjson.dumps(ask), headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        body: bytes = reply.read()
    return body


def events(stream: bytes) -> list[Any]:
    """The parsed data of a stream, `[DONE]` as bytes; comments are left out."""
    data = [event[6:] for event in stream.split(b"\n\n") if event.startswith(b"data: ")]
    return [one if one == b"[DONE]" else orjson.loads(one) for one in data]


def lasting(body: Json) -> Json:
    """Without what differs from call to call: id and time, also of tool calls."""
    kept = {name: value for name, value in body.items() if name not in ("id", "created")}
    if isinstance(kept.get("usage"), dict):
        kept["usage"] = {**kept["usage"], "prompt_tokens_details": None}  # who asks second finds the prompt cached
    for choice in kept["choices"]:
        for tool in choice.get("delta", choice.get("message")).get("tool_calls") or ():
            tool.pop("id", None)
    return kept


def said(chunks: list[Json]) -> tuple[list[Any], list[Json], list[Json]]:
    """Text, arguments, tokens, ids and ends, each put together; and each kind of chunk once, without them.

    Kinds that held nothing else are apart: there is none where all words came with the last chunk.
    """
    sums: list[Any] = ["", "", [], [], []]
    kinds: list[Json] = []
    of_words: list[Json] = []
    for chunk in chunks:
        silent = is_silent(chunk)
        for choice in chunk["choices"]:
            sums[0] += choice["delta"].pop("content", None) or ""
            tools = choice["delta"].get("tool_calls") or []
            for tool in tools:
                sums[1] += tool["function"].pop("arguments", "")
            # One chunk may hold a call's name and its first arguments, or two chunks: what held arguments alone is no kind.
            choice["delta"]["tool_calls"] = [tool for tool in tools if tool["function"]] or None
            sums[2] += (choice.get("logprobs") or {}).pop("content", ())
            if choice.get("token_ids"):
                sums[3] += choice["token_ids"]
                choice["token_ids"] = []
            if choice["finish_reason"]:  # in a chunk of its own, or in that of the last words
                ends = (choice["finish_reason"], choice.pop("stop_reason", None), chunk.pop("system_fingerprint", None))
                sums[4].append(ends)
                choice["finish_reason"] = None
        those = of_words if is_silent(chunk) else kinds
        if not silent and chunk not in those:
            those.append(chunk)
    return sums, kinds, of_words


def is_silent(chunk: Json) -> bool:
    """Asked for ids, vLLM also sends chunks for tokens whose text it still holds back; they say nothing."""
    choices = chunk["choices"]
    return bool(choices) and not any(any(choice["delta"].values()) or choice["finish_reason"] for choice in choices)


@pytest.mark.vllm
@pytest.mark.slow
def test_sync_sdk_sees_what_it_sees_directly(real: House, vllm: str, asks: dict[str, Json]) -> None:
    """The sync SDK's own types, whole and streamed, with log-probabilities, usage and a stop string, as without us."""
    ask = {**asks["log-probabilities"], "stop": asks["a stop string"]["stop"]}
    seen = []
    for url in (vllm, f"{real.url}/t/g"):
        with openai.OpenAI(base_url=f"{url}/v1", api_key="x") as client:
            whole = client.chat.completions.create(**ask)
            chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        choice = whole.choices[0]
        assert said == choice.message.content
        assert choice.logprobs is not None
        assert choice.finish_reason == "stop"
        assert chunks[-1].usage is not None
        tokens = [
            token
            for chunk in chunks
            if chunk.choices and chunk.choices[0].logprobs
            for token in chunk.choices[0].logprobs.content or ()
        ]
        seen.append((said, choice.logprobs, chunks[-1].usage.completion_tokens, [token.token for token in tokens]))
    assert seen[0] == seen[1]
    assert [count(event.response_ids) for event in real.captured] == [seen[0][2]] * 2


@pytest.mark.vllm
@pytest.mark.slow
async def test_raw_socket_before_a_real_engine(real: House, asks: dict[str, Json]) -> None:
    """On the wire: a stream in chunks of HTTP with its last one, then a whole reply of its declared length, on one connection."""
    requests = []
    for stream in (True, False):
        body = orjson.dumps({**asks["plain"], "stream": stream})
        last = b"" if stream else b"connection: close\r\n"
        head = b"POST /t/g/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n%bcontent-length: %d\r\n\r\n"
        requests.append(head % (last, len(body)) + body)
    heard = await say(real.url, *requests, pause_s=1.0, timeout_s=60)
    streamed, _, whole = heard.partition(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert streamed.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding: chunked\r\n" in streamed.lower()
    assert b"claw" not in heard.replace(b"x-claw", b"")
    head, _, body = whole.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert f"content-length: {len(body)}\r\n".encode() in head.lower() + b"\r\n"
    assert orjson.loads(body)["choices"][0]["finish_reason"] == "length"
    assert [event.integrity.complete for event in real.captured] == [True, True]


@pytest.mark.vllm
@pytest.mark.slow
async def test_real_stream_has_the_tokens_of_the_whole_reply(real: House) -> None:
    """Streamed or not, a greedy call has the same ids and log-probabilities in the log; n = 2 has two calls."""
    async with openai.AsyncOpenAI(base_url=f"{real.url}/t/g", api_key="x") as client:
        for streamed in (False, True):
            reply = await client.chat.completions.create(
                model="policy",
                messages=SPEECH,
                max_tokens=8,
                n=2,
                temperature=0.9,
                seed=5,
                stream=streamed,
            )
            if streamed:
                async for _ in reply:  # type: ignore[union-attr]  # the kind that this test makes has it
                    pass
    whole, streams = real.captured[:2], real.captured[2:]
    assert [event.response_ids for event in streams] == [event.response_ids for event in whole]
    assert all(event.integrity.complete for event in streams)
    for one, other in zip(whole, streams, strict=True):
        assert unpack_floats(one.response_logprobs) == pytest.approx(unpack_floats(other.response_logprobs), abs=1e-3)
        assert one.finish_reason == other.finish_reason


@pytest.mark.vllm
@pytest.mark.slow
async def test_leaving_a_real_stream_stops_the_engine(real: House, vllm: str) -> None:
    """The generation of a client that left is aborted in the engine, and its part is in the log."""
    async with openai.AsyncOpenAI(base_url=f"{real.url}/t/g", api_key="x") as client:
        reply = await client.chat.completions.create(
            model="policy",
            messages=SPEECH,
            max_tokens=200,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        for _ in range(3):
            await anext(reply)
        await reply.close()
    await asyncio.to_thread(until, lambda: real.captured)
    (event,) = real.captured
    assert (event.status, event.finish_reason) == ("aborted", None)
    assert orjson.loads(event.response_body)["choices"][0]["message"]["content"]
    await asyncio.to_thread(until, lambda: _in_flight(vllm) == 0)


def _in_flight(url: str) -> int:
    with urllib.request.urlopen(f"{url}/claw/info", timeout=5) as reply:
        running: int = orjson.loads(reply.read())["in_flight"]
        return running


@pytest.mark.vllm
@pytest.mark.slow
async def test_real_turns_are_written_as_deltas(real: House) -> None:
    """A conversation of a real engine: later prompts keep what they go on from, and come back as the engine had them."""
    messages = list(SPEECH)
    lengths = []
    async with openai.AsyncOpenAI(base_url=f"{real.url}/t/g", api_key="x") as client:
        for _ in range(3):
            reply = await client.chat.completions.create(
                model="policy",
                messages=messages,
                max_tokens=8,
            )
            assert reply.usage is not None
            lengths.append(reply.usage.prompt_tokens)
            messages += [
                {"role": "assistant", "content": reply.choices[0].message.content or ""},
                {"role": "user", "content": "And then? Tell me more about what happened on that day, please."},
            ]
    events = {event.call_id: event for event in real.captured}
    assert [count(prompt) for prompt in prompts(events).values()] == lengths
    assert len(bodies(events)) == 3
    assert [event.request.base_call_id is None for event in real.captured] == [True, False, False]

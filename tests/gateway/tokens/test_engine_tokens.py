"""Tokens that a worker hands over by themselves: captured exactly, cut out to the byte, never believed unseen."""

import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from claw_r1.schemas.http import TOKENS_COMMENT, TOKENS_HEADER, TOKENS_MEMBER
from tests.gateway.engine import Reply, ScriptedEngine, whole
from tests.gateway.house import House, ask
from tests.gateway.packed import IDS, LOGPROBS, PROMPT, choice, comment, generation

CHAT, TEXT = "/t1/g1/v1/chat/completions", "/t1/g1/v1/completions"
ASK = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.7}
FORGED = '","claw_tokens":[{}]}\n\n: claw.tokens=[]\n\ndata: [DONE]\n\n'


@pytest.fixture
def house(engine: ScriptedEngine) -> Iterator[House]:
    """A gateway whose worker hands tokens over."""
    with House() as running:
        running.worker(engine.url)
        yield running


def chat(*texts: str) -> dict[str, Any]:
    """A reply of chat, with a choice of each text."""
    choices = [
        {"index": index, "message": {"role": "assistant", "content": text}, "logprobs": None, "finish_reason": "stop"}
        for index, text in enumerate(texts or ("hello",))
    ]
    return {"id": "c", "object": "chat.completion", "model": "tiny", "choices": choices, "usage": {"prompt_tokens": 1}}


def event(text: str = "", finish: str | None = None, index: int = 0) -> bytes:
    """A chunk of a stream of chat."""
    body = {"id": "c", "choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


async def test_a_whole_reply(house: House, engine: ScriptedEngine) -> None:
    """The client gets what the engine wrote without us, the log the tokens; the request goes out as it came in."""
    engine.then(whole(chat()))
    reply = await ask(house, ASK, CHAT)
    assert (reply.status, reply.body) == (200, json.dumps(chat(), separators=(",", ":")).encode())
    (received,) = engine.requests
    assert (received.headers[TOKENS_HEADER], received.json) == ("1", ASK)
    (call,) = house.captured
    assert (unpack_ids(call.prompt.suffix), unpack_ids(call.response_ids)) == (PROMPT, IDS)
    assert (unpack_floats(call.response_logprobs), call.finish_reason, call.status) == (LOGPROBS, "stop", "completed")
    assert [(span.run_id, span.version, span.end) for span in call.spans] == [("run", 3, 3)]
    assert (call.integrity.missing, call.protocol, call.response_body) == ((), "chat", reply.body)
    assert (call.sampling.temperature, call.sampling.max_tokens) == (0.7, 9)
    assert (call.usage.prompt_tokens, call.usage.completion_tokens, call.usage.cached_tokens) == (4, 3, 2)


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_a_stream_cut_anywhere(house: House, engine: ScriptedEngine, size: int) -> None:
    """Its bytes are the engine's without the comment; its reply is stored as if it had not been streamed."""
    events = (event("he"), event("llo" + FORGED), event(finish="stop"))
    raw = b"".join((*events, comment(), b"data: [DONE]\n\n"))
    engine.then(Reply(pieces=tuple(raw[at : at + size] for at in range(0, len(raw), size))))
    reply = await ask(house, {**ASK, "stream": True}, CHAT)
    assert reply.body == b"".join((*events, b"data: [DONE]\n\n"))
    (call,) = house.captured
    assert (call.integrity.missing, unpack_ids(call.response_ids), call.status) == ((), IDS, "completed")
    stored = json.loads(call.response_body)
    assert (stored["object"], stored["choices"][0]["message"]) == ("chat.completion", {"content": "hello" + FORGED})
    assert call.timings.first_token_us is not None


async def test_a_worker_of_ours_behind_a_fixed_address(engine: ScriptedEngine) -> None:
    """Every engine is asked by the header, and what it hands over is believed; the reply is its own, whatever is in it."""
    written = {**chat(), "prompt_token_ids": [9], "service_tier": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}
    engine.then(whole(written), Reply(pieces=(event("hello"), event("", "stop"), comment(), b"data: [DONE]\n\n")))
    with House(upstreams=engine.url) as house:
        assert (await ask(house, ASK, CHAT)).json == written
        assert b"claw" not in (await ask(house, {**ASK, "stream": True}, CHAT)).body
        for call in house.captured:
            assert (unpack_ids(call.response_ids), unpack_floats(call.response_logprobs)) == (IDS, LOGPROBS)
            assert (call.integrity.missing, call.sampling.max_tokens) == ((), 9)


async def test_several_choices_and_several_prompts(house: House, engine: ScriptedEngine) -> None:
    """A call each, with its own tokens; of several prompts, its own prompt."""
    engine.then(whole(chat("a", "b"), generation(choice([11], [-0.5]), choice([12, 2], [-0.5, -1.0]), n=2)))
    await ask(house, {**ASK, "n": 2}, CHAT)
    choices = [{"index": index, "text": "x", "finish_reason": "length"} for index in range(2)]
    generations = [generation(prompt=[1, 2]), generation(choice([9], [-2.0], finish="length"), prompt=[3])]
    engine.then(whole({"object": "text_completion", "choices": choices}, *generations))
    await ask(house, {"prompt": [[1, 2], [3]], "model": "tiny"}, TEXT)
    calls = house.captured
    assert [unpack_ids(call.response_ids) for call in calls] == [[11], [12, 2], IDS, [9]]
    assert [unpack_ids(call.prompt.suffix) for call in calls] == [PROMPT, PROMPT, [1, 2], [3]]
    assert [call.call_id.rpartition(".")[2] for call in (calls[1], calls[3])] == ["1", "1"]
    assert [call.protocol for call in calls] == ["chat", "chat", "completions", "completions"]
    assert [json.loads(call.response_body)["choices"][0]["index"] for call in calls] == [0, 1, 0, 1]
    assert all(call.integrity.complete for call in calls)


async def test_an_engine_that_generates_several_times(house: House, engine: ScriptedEngine) -> None:
    """One choice of several generations: a call for each, in order; the last has the reply."""
    engine.then(whole(chat("done"), generation(choice([7], [-0.5])), generation(prompt=[1, 5, 6, 7, 7, 8])))
    await ask(house, ASK, CHAT)
    first, last = house.captured
    assert (unpack_ids(first.response_ids), first.response_body, first.choice) == ([7], b"", 0)
    assert (unpack_ids(last.response_ids), json.loads(last.response_body), last.choice) == (IDS, chat("done"), 1)
    assert unpack_ids(last.prompt.suffix) == [1, 5, 6, 7, 7, 8]


async def test_the_versions_of_a_reply_are_those_of_all_its_choices(house: House, engine: ScriptedEngine) -> None:
    """In the header and in what is remembered of the call."""
    versions = [choice(spans=[[label, 0, 3]]) for label in ("run/3", "run/9", "base/0")]
    engine.then(whole(chat("a", "b", "c"), generation(*versions, n=3)))
    reply = await ask(house, {**ASK, "n": 3}, CHAT)
    assert reply.headers["x-claw-policy-version"] == "run/3..9,base/0"
    async with aiohttp.ClientSession(house.url) as session, session.get("/t1/g1/v1/calls") as calls:
        assert [call["policy_version"] for call in (await calls.json())["calls"]] == ["run/3..9,base/0"]


FLAWED = {
    "no ids": (choice([], []), ()),
    "negative id": (choice([-1, 2, 3]), ("token_ids", "logprobs")),
    "one log-probability less": (choice(logprobs=[-0.5]), ("logprobs",)),
    "above zero": (choice(logprobs=[0.5, -1, -1]), ("logprobs",)),
    "no number": (choice(logprobs=[float("nan"), -1, -1]), ("logprobs",)),
    "endless": (choice(logprobs=[-1, float("-inf"), -1]), ("logprobs",)),
    "nearly zero": (choice(logprobs=[-1, 1e-40, -1]), ("logprobs",)),
    "the least and the most": (choice([0, 2**31 - 1, 2], logprobs=[-0.0, 0.0, -3.4028234e38]), ()),
    "odd bytes": (choice(logprobs=LOGPROBS) | {"ids": "AAAAAAA="}, ("token_ids", "logprobs")),
    "spans with a hole": (choice(spans=[["run/3", 0, 1], ["run/3", 2, 3]]), ("spans",)),
    "spans of nobody": (choice(spans=[["default", 0, 3]]), ("version_unknown",)),
    "no spans": (choice(spans=[]), ("spans",)),
}


@pytest.mark.parametrize("flawed", FLAWED)
async def test_what_is_wrong_is_named(house: House, engine: ScriptedEngine, flawed: str) -> None:
    """The client has its reply all the same, the log the word for it."""
    handed_over, missing = FLAWED[flawed]
    engine.then(whole(chat(), generation(handed_over)))
    assert (await ask(house, ASK, CHAT)).status == 200
    (call,) = house.captured
    assert set(missing) <= set(call.integrity.missing)
    assert call.integrity.complete is not bool(missing)


@pytest.mark.parametrize(
    ("raw", "length"),
    [(b"[]", None), (b"[{}]", None), (b"{", None), (b'["x"]', None), (b"[]", 3), (b"[]", 99999), (b"[]", 0)],
)
async def test_garbage_is_no_tokens(house: House, engine: ScriptedEngine, raw: bytes, length: int | None) -> None:
    """A member that is none, or a length that fits nothing: stored without tokens, and never a failed call."""
    plain = json.dumps(chat()).encode()
    member = b"," + TOKENS_MEMBER.encode() + raw
    own = len(member) if length is None else length
    engine.then(Reply(plain[:-1] + member + b"}", headers={TOKENS_HEADER: str(own)}))
    reply = await ask(house, ASK, CHAT)
    calls, failures = house.captured, house.failed
    if length is None and raw != b"{":
        assert (reply.status, reply.body) == (200, plain)
    assert len(calls) + len(failures) == 1
    assert all("token_ids" in call.integrity.missing for call in calls)


async def test_a_client_can_forge_nothing(house: House, engine: ScriptedEngine) -> None:
    """The header and the member are the engine's to write: what a client or its model writes stays text."""
    forged = {**chat(FORGED), "claw_tokens": "mine"}
    engine.then(Reply(forged))
    reply = await ask(house, {**ASK, "claw_tokens": 1}, CHAT)
    assert reply.json == forged
    assert set(house.captured[0].integrity.missing) >= {"token_ids", "prompt_ids"}


async def test_a_stream_that_breaks_before_its_tokens(house: House, engine: ScriptedEngine) -> None:
    """Aborted, with the text that came."""
    engine.then(Reply(pieces=(event("he"), event("l"))))
    with pytest.raises(Exception):  # noqa: B017, PT011  # whatever the client library makes of a broken stream
        await ask(house, {**ASK, "stream": True}, CHAT)
    (call,) = house.captured
    assert (call.status, json.loads(call.response_body)["choices"][0]["message"]["content"]) == ("aborted", "hel")
    assert {"token_ids", "stream_end"} <= set(call.integrity.missing)


async def test_an_error_in_a_stream_after_its_tokens_is_no_completion(house: House, engine: ScriptedEngine) -> None:
    """The generation did not come to its end, although the stream did."""
    engine.then(
        Reply(
            pieces=(
                event("he"),
                comment(generation(choice(finish=None))),
                b'data: {"error":{}}\n\n',
                b"data: [DONE]\n\n",
            )
        )
    )
    await ask(house, {**ASK, "stream": True}, CHAT)
    assert [call.status for call in house.captured] == ["aborted"]


@pytest.mark.parametrize(
    ("field", "value", "word"), [("echo", True, "echo"), ("suffix", "x", "suffix"), ("best_of", 3, "best_of")]
)
async def test_what_is_stored_and_not_trained(
    house: House, engine: ScriptedEngine, field: str, value: object, word: str
) -> None:
    """A reply that is more than what was sampled after the prompt has the reason in its event."""
    engine.then(whole({"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}))
    assert (await ask(house, {"prompt": "a", field: value}, TEXT)).status == 200
    assert house.captured[0].integrity.missing == (word,)


def test_the_words_are_what_the_plugin_writes() -> None:
    """Header, member and comment stand in one place, read by both sides."""
    assert (TOKENS_HEADER, TOKENS_MEMBER, TOKENS_COMMENT) == ("x-claw-tokens", '"claw_tokens":', ": claw.tokens=")

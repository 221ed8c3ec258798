"""Claw-R1's generate: token ids in, token ids out, captured as completions by token ids are."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from claw_r1.datapool.view.conversations import CallBodies, conversation
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from tests.gateway.engine import Reply, ScriptedEngine, whole
from tests.gateway.house import House, ask
from tests.gateway.packed import IDS, LOGPROBS, PROMPT, choice, generation

PATH = "/t1/g1/v1/generate"
ASK: dict[str, Any] = {"prompt_ids": PROMPT, "sampling_params": {"temperature": 0.7, "max_tokens": 9, "logprobs": True}}
TEXT = {"id": "c", "object": "text_completion", "choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}]}


@pytest.fixture
def house(engine: ScriptedEngine) -> Iterator[House]:
    """A gateway whose worker hands tokens over."""
    with House(aliases="policy=tiny") as running:
        running.worker(engine.url)
        yield running


@pytest.mark.parametrize("name", ["prompt_ids", "prompt_token_ids"])
async def test_tokens_in_tokens_out(house: House, engine: ScriptedEngine, name: str) -> None:
    """The engine gets a completions request by ids; client and log get the tokens, log-probabilities and versions."""
    engine.then(whole(TEXT))
    reply = await ask(house, {name: PROMPT, "sampling_params": ASK["sampling_params"]}, PATH)
    assert (reply.status, reply.json) == (
        200,
        {
            "token_ids": IDS,
            "log_probs": LOGPROBS,
            "spans": [["run/3", 0, 3]],
            "stop_reason": "stop",
            "text": "hi",
        },
    )
    (received,), (call,) = engine.requests, house.captured
    assert (received.path, received.json) == (
        "/v1/completions",
        {"prompt": PROMPT, "temperature": 0.7, "max_tokens": 9},
    )
    assert (unpack_ids(call.prompt.suffix), unpack_ids(call.response_ids)) == (PROMPT, IDS)
    assert (unpack_floats(call.response_logprobs), call.integrity.complete) == (LOGPROBS, True)
    assert (call.protocol, call.response_body, json.loads(call.request.suffix)[name]) == (
        "generate",
        reply.body,
        PROMPT,
    )
    assert [
        turn["content"] for turn in conversation([CallBodies(call.protocol, call.request.suffix, call.response_body)])
    ] == ["hi"]


async def test_it_is_adapted_and_repeated_as_any_call(house: House, engine: ScriptedEngine) -> None:
    """Aliases count, and a retry under a key gets the reply that was captured."""
    engine.then(whole(TEXT))
    body = {**ASK, "model": "policy"}
    first, again = [await ask(house, body, PATH, idempotency_key="k") for _ in range(2)]
    assert (first.body, len(engine.requests)) == (again.body, 1)
    assert engine.requests[0].json["model"] == "tiny"
    assert (house.captured[0].adapted, json.loads(house.captured[0].request.suffix)) == (("model",), body)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no prompt": ({"prompt_ids": None}, "prompt_ids"),
    "an empty one": ({"prompt_ids": []}, "prompt_ids"),
    "text": ({"prompt_ids": "hi"}, "prompt_ids"),
    "a negative id": ({"prompt_ids": [-1]}, "prompt_ids"),
    "no object": ({"sampling_params": [1]}, "sampling_params"),
    "a stream": ({"stream": True}, "stream"),
    "several": ({"sampling_params": {"n": 2}}, "n"),
    "a picture": ({"image_data": ["x"]}, "image_data"),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_requests_are_refused(house: House, engine: ScriptedEngine, name: str) -> None:
    """With the field, before any engine hears of them."""
    change, field = BAD[name]
    reply = await ask(house, {**ASK, **change}, PATH)
    assert (reply.status, reply.json["error"]["param"], engine.requests) == (400, field, [])


async def test_an_engine_that_keeps_its_tokens_is_of_no_use(engine: ScriptedEngine) -> None:
    """A reply without tokens is none, rather than an empty one."""
    with House() as house:
        house.worker(engine.url)
        engine.then(Reply(TEXT))
        reply = await ask(house, ASK, PATH)
        assert (reply.status, reply.json["error"]["code"]) == (502, "upstream_bad_reply")
        assert [failure.reason for failure in house.failed] == ["upstream_bad_reply"]


async def test_an_empty_response_is_one(house: House, engine: ScriptedEngine) -> None:
    """Stored as it is."""
    engine.then(whole(TEXT, generation(choice([], []))))
    reply = await ask(house, ASK, PATH)
    assert (reply.json["token_ids"], reply.json["log_probs"], reply.json["spans"]) == ([], [], [])

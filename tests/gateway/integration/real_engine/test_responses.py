"""OpenAI's own SDK on responses of a real vLLM behind the gateway, beside what the same engine says when it is asked alone."""

import base64
import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from claw_r1.gateway.tokens.sse import Splitter, data_of
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from claw_r1.schemas.events import CallCaptured
from claw_r1.schemas.http import TOKENS_HEADER
from tests.gateway.house import House, ask
from tests.lazy_modules import lazy_module

if TYPE_CHECKING:
    import openai
    from openai.types.responses import FunctionToolParam
else:
    openai = lazy_module("openai")

pytestmark = [pytest.mark.vllm, pytest.mark.process]

PATH = "/t1/g1/v1/responses"
GREEDY: dict[str, Any] = {"model": "policy", "input": "one two", "temperature": 0.0, "max_output_tokens": 12}
SEEDED = {**GREEDY, "temperature": 0.8, "seed": 7}
SAYS_SO: dict[str, Any] = {"structured_outputs": {"choice": ["three four"]}, "max_output_tokens": 32}
"""A reply that is text, whatever a random model would say: its ids are the tokenizer's."""
CHANGING = re.compile(
    rb'"(id|item_id|call_id)":"[^"]*"|"created_at":[0-9.]+|"(input|cached)_tokens_per_turn":\[[0-9,]*\]|"cached_tokens":[0-9]+'
)
ADD: "FunctionToolParam" = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": False,
}


def alone(vllm: str, body: dict[str, Any], *, tokens: bool = False) -> httpx.Response:
    """What the engine answers to somebody who is not the gateway."""
    headers = {TOKENS_HEADER: "1"} if tokens else {}
    reply = httpx.post(f"{vllm}/v1/responses", json=body, headers=headers, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply


def steady(raw: bytes, *, streamed: bool) -> list[Any]:
    """Without what differs from call to call: ids, times, and how many tokens stand in one event of a stream."""
    raw = CHANGING.sub(b'"x":0', raw)
    if not streamed:
        return [raw]
    merged: list[dict[str, Any]] = []
    for event in Splitter().feed(raw):
        if not (data := data_of(event)):  # the worker's comment about versions
            continue
        fields = json.loads(data)
        del fields["sequence_number"]
        if merged and "delta" in fields and merged[-1]["type"] == fields["type"]:
            merged[-1]["delta"] += fields["delta"]
        else:
            merged.append(fields)
    return merged


def handed_over(reply: httpx.Response) -> dict[str, Any]:
    """The one generation that the engine tells of."""
    length = int(reply.headers[TOKENS_HEADER])
    (only,) = json.loads(reply.content[-length - 1 : -1].partition(b":")[2])
    return {**only["choices"][0], "prompt": only["prompt"]}


def assert_exact(call: CallCaptured, expected: dict[str, Any]) -> None:
    """The event holds what the engine handed over to somebody else for the same request."""
    ids, prompt = (unpack_ids(base64.b64decode(expected[name])) for name in ("ids", "prompt"))
    assert (unpack_ids(call.response_ids), unpack_ids(call.prompt.suffix)) == (ids, prompt)
    logprobs = unpack_floats(base64.b64decode(expected["logprobs"]))
    assert unpack_floats(call.response_logprobs) == pytest.approx(logprobs, abs=1e-4)
    spans = [[f"{span.run_id}/{span.version}", span.start, span.end] for span in call.spans]
    assert (spans, call.integrity.missing, call.status) == (expected["spans"], (), "completed")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("body", [GREEDY, SEEDED])
async def test_tokens_and_bytes_are_the_engines(real: House, vllm: str, body: dict[str, Any], streamed: bool) -> None:
    """Ids, log-probabilities, spans and prompt; and every byte but ids and times."""
    expected = handed_over(alone(vllm, body, tokens=True))
    plain = alone(vllm, {**body, "stream": streamed})
    reply = await ask(real, {**body, "stream": streamed}, PATH)
    assert steady(reply.body, streamed=streamed) == steady(plain.content, streamed=streamed)
    (call,) = real.captured
    assert_exact(call, expected)
    assert (call.protocol, call.finish_reason, call.sampling.max_tokens) == ("responses", "length", 12)


async def test_the_sdk(real: House) -> None:
    """Whole, streamed with events of every kind that the model makes, with tools and log-probabilities; async as well."""
    with openai.OpenAI(base_url=f"{real.url}/t1/g1/v1", api_key="x") as client:
        whole = client.responses.create(**GREEDY, tools=[ADD], include=["message.output_text.logprobs"])
        assert whole.status == "incomplete"
        events = list(client.responses.create(**GREEDY, stream=True, tools=[ADD]))
        kinds = [event.type for event in events]
        assert [kinds[0], kinds[-1]] == ["response.created", "response.completed"]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        with client.responses.stream(**GREEDY, tools=[ADD]) as stream:
            assert stream.get_final_response().output_text == whole.output_text
        with pytest.raises(openai.NotFoundError) as unknown:
            client.responses.create(**GREEDY, previous_response_id="resp_0")
        assert unknown.value.code == "previous_response_not_found"
        with pytest.raises(openai.BadRequestError, match="'background' is not supported"):
            client.responses.create(**GREEDY, background=True)
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(**{**GREEDY, "input": []}, tool_choice="required")
        assert "required" in refused.value.message
    async with openai.AsyncOpenAI(base_url=f"{real.url}/t1/g1/v1", api_key="x") as client_too:
        assert (await client_too.responses.create(**GREEDY, tools=[ADD])).output_text == whole.output_text
    calls = real.captured
    assert [call.integrity.missing for call in calls] == [()] * 4
    assert len({call.response_ids for call in calls}) == 1


async def test_turns_go_on_from_each_other(real: House) -> None:
    """Three turns by `previous_response_id`: each prompt begins with all that the one before it was and said."""
    with openai.OpenAI(base_url=f"{real.url}/t1/g1/v1", api_key="x") as client:
        fields = {**GREEDY, "temperature": 1.0}
        first = client.responses.create(**{**fields, "max_output_tokens": 32}, extra_body=SAYS_SO)
        second = client.responses.create(
            **{**fields, "input": "five"}, previous_response_id=first.id, extra_body=SAYS_SO
        )
        client.responses.create(**{**fields, "input": "six"}, previous_response_id=second.id)
        assert first.output_text == second.output_text == "three four"
    one, two, three = real.captured
    assert [call.adapted for call in (one, two, three)] == [(), ("previous_response",), ("previous_response",)]
    for earlier, later in ((one, two), (two, three)):
        kept = earlier.prompt.full_length + len(unpack_ids(earlier.response_ids))
        assert (later.prompt.base_call_id, later.prompt.keep) == (earlier.call_id, kept)
    assert all(call.integrity.complete for call in (one, two, three))


CODEX: dict[str, Any] = {
    **GREEDY,
    "instructions": "be brief",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "obey"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "namespace": "team", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
    ],
    "store": False,
    "stream": True,
    "tool_choice": "auto",
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "client_metadata": {"x": "y"},
}
NAMESPACE: dict[str, Any] = {"type": "namespace", "name": "team", "description": "Others.", "tools": [dict(ADD)]}


async def test_what_codex_asks_for(real: House) -> None:
    """The engine takes its items, and tools of every kind, as they are: nothing is adapted."""
    kinds: list[dict[str, Any]] = [dict(ADD), NAMESPACE, {"type": "web_search"}, {"type": "custom", "name": "patch"}]
    reply = await ask(real, {**CODEX, "tools": kinds}, PATH)
    assert reply.status == 200, reply.body
    (call,) = real.captured
    assert (call.adapted, call.integrity.missing, call.status) == ((), (), "completed")

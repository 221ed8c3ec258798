"""Tokens are handed over with a reply, or as a comment of a stream, without an engine."""

import json
from base64 import b64decode
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from claw_r1.rollout.plugin import engine_tap
from claw_r1.rollout.plugin.handover import TokenHandover
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from tests.rollout.plugin.sampling_params import params

Message = dict[str, Any]


class Engine:
    """Answers a call with these outputs; keeps the parameters that it got, and whether calls were closed."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs, self.params, self.closed = outputs, SimpleNamespace(), 0

    async def generate(self, prompt: str, sampling_params: Any, request_id: str) -> AsyncIterator[Any]:
        self.params = sampling_params
        try:
            for output in self.outputs:
                yield output
        finally:
            self.closed += 1


def output(ids: list[int], logprobs: Any, finish: str | None = None, index: int = 0) -> SimpleNamespace:
    """One output of the engine with one choice."""
    spans = [SimpleNamespace(version="run/3", start=0, end=3)] if finish else None
    choice = SimpleNamespace(
        index=index,
        token_ids=ids,
        logprobs=logprobs,
        cumulative_logprob=-1.0,
        finish_reason=finish,
        weight_versions=spans,
    )
    return SimpleNamespace(outputs=[choice], prompt_token_ids=[5, 6], num_cached_tokens=1)


def flat(*values: float) -> SimpleNamespace:
    """vLLM's flat log-probabilities; of each position a second one follows the sampled token's."""
    at = range(0, 2 * len(values), 2)
    return SimpleNamespace(start_indices=list(at), logprobs=[each for value in values for each in (value, -9.0)])


async def handed_over(
    chunks: list[bytes], *, stream: bool, asks: bool = True, prompts: int = 1, **wishes: Any
) -> tuple[Engine, list[Message]]:
    """What a client gets of responses in two parts, one per prompt; where it asks, with their tokens."""
    verbose = [
        {7: SimpleNamespace(logprob=-0.5)},
        {8: SimpleNamespace(logprob=-0.25), 1: SimpleNamespace(logprob=-0.1)},
    ]
    own = wishes.get("logprobs") is None
    first = output([7, 8], flat(-0.5, -0.25) if own else verbose)
    last = output([2], flat(-1.0) if own else [{2: SimpleNamespace(logprob=-1.0)}], "stop")
    engine, sent = Engine(first, last), []
    engine_tap.tap_engine(engine)
    seen: list[Any] = []
    asked = params(**wishes)

    async def app(scope: Message, receive: object, send: Any) -> None:
        for _ in range(prompts):
            seen.extend([each.outputs[0].logprobs async for each in engine.generate("p", asked, "id")])
        kind = b"text/event-stream" if stream else b"application/json"
        headers = [(b"content-type", kind), (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, chunk in enumerate(chunks, 1):
            await send({"type": "http.response.body", "body": chunk, "more_body": number < len(chunks)})

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/v1/messages", "headers": [(b"x-claw-tokens", b"1")] if asks else []}
    await TokenHandover(app)(scope, None, send)  # type: ignore[arg-type]  # a wrong or a partial argument is the case
    assert not asks or (seen == [None, None] * prompts) is own, "who asked for none sees none"
    assert engine.closed == prompts
    assert asked == params(**wishes), "a route writes its parameters into its reply"
    return engine, sent


@pytest.mark.parametrize("wishes", [{}, {"logprobs": 1}])
async def test_tokens_are_the_last_member_of_a_reply(wishes: Message) -> None:
    """With its length in a header; the body may come in pieces; lengths and log-probabilities are exact."""
    engine, (start, body) = await handed_over([b'{"a"', b":1}"], stream=False, **wishes)
    headers = dict(start["headers"])
    length = int(headers[b"x-claw-tokens"])
    assert int(headers[b"content-length"]) == len(body["body"]) == len(b'{"a":1}') + length
    assert body["body"][: -length - 1] + b"}" == b'{"a":1}'
    (generation,) = json.loads(body["body"])["claw_tokens"]
    (choice,) = generation["choices"]
    assert unpack_ids(b64decode(generation["prompt"])) == [5, 6]
    assert unpack_ids(b64decode(choice["ids"])) == [7, 8, 2]
    assert unpack_floats(b64decode(choice["logprobs"])) == [-0.5, -0.25, -1.0]
    assert (choice["spans"], choice["finish"], generation["cached"]) == ([["run/3", 0, 3]], "stop", 1)
    assert engine.params.logprobs == wishes.get("logprobs", 0)


async def test_several_prompts_are_several_generations() -> None:
    """In the order in which they were asked for; the gateway numbers their choices in one row, as OpenAI's format does."""
    _, (_, body) = await handed_over([b'{"a":1}'], stream=False, prompts=2)
    assert [len(each["choices"]) for each in json.loads(body["body"])["claw_tokens"]] == [1, 1]


@pytest.mark.parametrize(("asks", "prompts"), [(False, 1), (True, 0)])
async def test_a_reply_is_the_engines_own_where_nothing_is_handed_over(asks: bool, prompts: int) -> None:
    """Nobody asked, or nothing was generated, as in an error: the bytes are vLLM's, and no header says otherwise."""
    _, (start, body) = await handed_over([b"{}"], stream=False, asks=asks, prompts=prompts)
    assert (body["body"], b"x-claw-tokens" in dict(start["headers"])) == (b"{}", False)


async def test_a_comment_is_never_put_inside_an_event() -> None:
    """Tokens wait for the next event boundary when a chunk continues a half-written event."""
    _, sent = await handed_over([b"continued\n\n", b"data: [DONE]\n\n"], stream=True)
    assert sent[1]["body"] == b"continued\n\n"
    assert sent[2]["body"].startswith(b": claw.tokens=[")


async def test_tokens_are_a_comment_of_a_stream() -> None:
    """Before the event that follows the last token."""
    _, sent = await handed_over([b"data: [DONE]\n\n"], stream=True)
    assert sent[1]["body"].startswith(b': claw.tokens=[{"prompt":')
    assert sent[1]["body"].endswith(b"}]\n\ndata: [DONE]\n\n")

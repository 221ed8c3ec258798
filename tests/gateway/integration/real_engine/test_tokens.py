"""The plugin's tokens from a real vLLM, route by route, beside what the same engine says when it is asked alone."""

import json
from typing import Any

import httpx
import pytest

from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from tests.gateway.house import House, ask

pytestmark = [pytest.mark.vllm, pytest.mark.process]

SAMPLED = {"temperature": 0.8, "seed": 7, "max_tokens": 12, "model": "policy"}
MESSAGES = [{"role": "user", "content": "one two"}]
CHAT, TEXT = "/t1/g1/v1/chat/completions", "/t1/g1/v1/completions"
CHANGING = ("id", "created", "system_fingerprint")


def alone(vllm: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the engine answers to somebody who knows nothing of us."""
    reply = httpx.post(f"{vllm}{path.removeprefix('/t1/g1')}", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    parsed: dict[str, Any] = reply.json()
    return parsed


def steady(reply: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from call to call."""
    return {name: value for name, value in reply.items() if name not in CHANGING}


async def test_chat_gives_what_verbose_replies_give(real: House, vllm: str) -> None:
    """Ids, log-probabilities and prompt of a seeded call are those that vLLM writes for one who asks for them."""
    body = {**SAMPLED, "messages": MESSAGES}
    verbose = alone(vllm, CHAT, {**body, "logprobs": True, "return_token_ids": True})
    reply = await ask(real, body, CHAT)
    assert steady(reply.json) == steady(alone(vllm, CHAT, body))
    (call,) = real.captured
    choice = verbose["choices"][0]
    assert unpack_ids(call.response_ids) == choice["token_ids"]
    assert unpack_ids(call.prompt.suffix) == verbose["prompt_token_ids"]
    expected = [token["logprob"] for token in choice["logprobs"]["content"]]
    assert unpack_floats(call.response_logprobs) == pytest.approx(expected, abs=1e-6)
    assert (call.integrity.missing, [(span.run_id, span.version) for span in call.spans]) == ((), [("run", 7)])
    assert (call.sampling.temperature, call.sampling.seed, call.sampling.max_tokens) == (0.8, 7, 12)
    assert not call.sampling.constrained


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("n", [1, 2])
async def test_chat_with_log_probabilities_of_the_clients_own(real: House, vllm: str, streamed: bool, n: int) -> None:
    """Who asks for them has them, and the event all the same."""
    body = {**SAMPLED, "messages": MESSAGES, "logprobs": True, "top_logprobs": 2, "stream": streamed, "n": n}
    reply = await ask(real, body, CHAT)
    calls = real.captured
    assert [call.integrity.missing for call in calls] == [()] * n
    stored = [json.loads(call.response_body)["choices"][0] for call in calls]
    for call, choice in zip(calls, stored, strict=True):
        content = [token["logprob"] for token in choice["logprobs"]["content"]]
        assert unpack_floats(call.response_logprobs) == pytest.approx(content, abs=1e-6)
    assert b"claw" not in reply.body


async def test_text_completions_of_several_prompts(real: House, vllm: str) -> None:
    """A call each, beside those of the same prompts alone."""
    body = {**SAMPLED, "temperature": 0.0, "prompt": [[5, 6, 7], [8, 9]], "logprobs": 0, "return_token_ids": True}
    expected = alone(vllm, TEXT, body)["choices"]
    await ask(real, {**SAMPLED, "temperature": 0.0, "prompt": [[5, 6, 7], [8, 9]]}, TEXT)
    calls = real.captured
    assert [unpack_ids(call.prompt.suffix) for call in calls] == [[5, 6, 7], [8, 9]]
    assert [unpack_ids(call.response_ids) for call in calls] == [choice["token_ids"] for choice in expected]
    for call, choice in zip(calls, expected, strict=True):
        assert unpack_floats(call.response_logprobs) == pytest.approx(choice["logprobs"]["token_logprobs"], abs=1e-4)
    assert all(call.integrity.complete for call in calls)


async def test_what_shapes_the_distribution_is_known_from_the_engine(real: House) -> None:
    """A ban, a grammar, a clamp: the engine's own parameters stand in the event."""
    body = {"messages": MESSAGES, "max_tokens": 3, "model": "policy"}
    await ask(real, {**body, "structured_outputs": {"choice": ["a", "b"]}}, CHAT)
    await ask(real, {**body, "logit_bias": {"7": 1}}, CHAT)
    await ask(real, {**body, "temperature": 0.001, "top_p": 0.5, "stop": "x"}, CHAT)
    shaped, biased, greedy = real.captured
    assert (shaped.sampling.constrained, biased.sampling.constrained, greedy.sampling.constrained) == (
        True,
        True,
        False,
    )
    assert (greedy.sampling.temperature, greedy.sampling.top_p, greedy.sampling.stop) == (0.01, 0.5, ("x",))

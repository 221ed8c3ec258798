"""Routes of our own over a real vLLM: generate beside completions by token ids, and counted tokens."""

import json

import pytest

from claw_r1.schemas.arrays import unpack_ids
from tests.gateway.house import House, ask
from tests.gateway.integration.real_engine.test_tokens import MESSAGES, alone

pytestmark = [pytest.mark.vllm, pytest.mark.process]

PARAMS = {"temperature": 0.8, "seed": 7, "max_tokens": 12}


async def test_generate_gives_what_completions_by_ids_give(real: House, vllm: str) -> None:
    """Ids, log-probabilities and text of the same seeded request, asked of the engine alone."""
    prompt = [1, 5, 6, 7]
    body = {"prompt": prompt, "model": "policy", **PARAMS, "return_token_ids": True, "logprobs": 0}
    expected = alone(vllm, "/v1/completions", body)["choices"][0]
    reply = await ask(real, {"prompt_ids": prompt, "sampling_params": PARAMS}, "/t1/g1/v1/generate")
    assert reply.status == 200, reply.body
    assert (reply.json["token_ids"], reply.json["text"]) == (expected["token_ids"], expected["text"])
    assert reply.json["log_probs"] == pytest.approx(expected["logprobs"]["token_logprobs"], abs=1e-6)
    (call,) = real.captured
    assert (unpack_ids(call.prompt.suffix), call.integrity.missing) == (prompt, ())


async def test_an_engine_counts_tokens(real: House, vllm: str) -> None:
    """As it does when it is asked alone; what it refuses has Anthropic's shape."""
    body = {"model": "policy", "messages": MESSAGES}
    path = "/t1/g1/v1/messages/count_tokens"
    assert (await ask(real, body, path)).json == alone(vllm, "/v1/messages/count_tokens", body)
    refusal = await ask(real, {"model": "policy"}, path)
    assert (refusal.status, json.loads(refusal.body)["type"]) == (400, "error")
    assert real.raw_records() == b""

"""Messages before a real vLLM: the engine's own bytes and tokens, by Anthropic's SDK, and the model's own log-probabilities."""

import re
from array import array
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from claw_r1.datapool.batch.sequences import call_tokens, rows
from claw_r1.datapool.delta_decoding import prompts
from claw_r1.schemas.arrays import unpack_floats, unpack_ids
from claw_r1.schemas.events import CallCaptured, VersionSpan
from claw_r1.schemas.http import TOKENS_HEADER
from tests.gateway.engine import Json
from tests.gateway.house import House
from tests.gateway.integration.test_conversations import folded
from tests.lazy_modules import lazy_module

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = lazy_module("anthropic")

pytestmark = [pytest.mark.vllm, pytest.mark.process]

SPEECH: list[Json] = [{"role": "user", "content": "one two"}]
GREEDY: Json = {"model": "policy", "max_tokens": 12, "temperature": 0, "messages": SPEECH}
SDK: Any = {"model": "policy", "max_tokens": 12, "messages": SPEECH, "extra_body": {"temperature": 0}}
"""As `GREEDY`, by an SDK that has no temperature."""
TOOL: Json = {"name": "look", "description": "d", "input_schema": {"type": "object", "properties": {"up": {}}}}
USED: list[Json] = [
    *SPEECH,
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "let me look"},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"up": 1}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [{"type": "text", "text": "no"}]}
        ],
    },
]
WISHES: dict[str, Json] = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "top_k": 1},  # which makes it repeatable: messages have no seed
    "system, tools and cache": {
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [TOOL],
        "tool_choice": {"type": "auto"},
        "metadata": {"user_id": "u"},
    },
    "a tool was used": {"messages": USED, "tools": [TOOL]},
    "a stop sequence": {"stop_sequences": ["e", "a", "\n"], "max_tokens": 60},
    "a system in the middle": {"messages": [*SPEECH, {"role": "system", "content": "x"}, *SPEECH]},
}


def post(url: str, ask: Json, **headers: str) -> httpx.Response:
    """What the engine, or the gateway, answers."""
    reply = httpx.post(f"{url}/v1/messages?beta=true", json=ask, headers=headers, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply


def lasting(body: bytes) -> bytes:
    """Without what differs from call to call."""
    return re.sub(rb'("id":")(?:chatcmpl|msg|call)[^"]*', rb"\g<1>1", body)


def alone(url: str, ask: Json) -> tuple[bytes, Json]:
    """The engine's reply to one who knows nothing of us, and what it says of its tokens to one who does."""
    post(url, ask)  # from then on, as much of the prompt is cached for all
    generations = post(url, ask, **{TOKENS_HEADER: "1"}).json()["claw_tokens"]
    assert len(generations) == 1
    return lasting(post(url, ask).content), generations[0]


def numbers(kind: str, packed: str) -> list[Any]:
    return array(kind, b64decode(packed)).tolist()


def check(call: CallCaptured, generation: Json) -> None:
    """The event has what the engine says, exactly."""
    (choice,) = generation["choices"]
    prompt = prompts({call.call_id: call})[call.call_id]
    assert (unpack_ids(call.response_ids), unpack_ids(prompt)) == (
        numbers("i", choice["ids"]),
        numbers("i", generation["prompt"]),
    )
    assert unpack_floats(call.response_logprobs) == pytest.approx(numbers("f", choice["logprobs"]), abs=1e-4)
    assert call.spans == (VersionSpan(run_id="run", version=7, start=0, end=len(unpack_ids(call.response_ids))),)
    assert (call.integrity.missing, call.protocol) == ((), "messages")


@pytest.mark.parametrize("name", WISHES)
def test_the_engines_bytes_and_tokens(real: House, vllm: str, name: str) -> None:
    """Direct or through the gateway: the same bytes, whole and in the sum of a stream; the log has what the engine sampled."""
    ask = {**GREEDY, **WISHES[name]}
    direct, generation = alone(vllm, ask)
    url = f"{real.url}/t/g-{len(name)}"
    assert lasting(post(url, ask).content) == direct
    ask["stream"] = True
    streamed = post(f"{url}x", ask).content
    assert b"claw" not in streamed
    assert texts(streamed) == texts(post(vllm, ask).content)
    for call in real.captured:
        check(call, generation)


def texts(stream: bytes) -> tuple[bytes, set[bytes]]:
    """All that a stream says, and the kinds of its events; the clock decides how many tokens an event holds."""
    said = b"".join(re.findall(rb'"(?:text|partial_json)":"((?:[^"\\]|\\.)*)"', stream))
    stream = re.sub(rb": claw[^\n]*\n\n", b"", stream)  # the engine's own, to one who knows nothing of us
    tail = lasting(stream.partition(b"event: content_block_stop")[2])
    return said + tail, set(re.findall(rb"event: (\w+)", stream))


async def test_the_sdk(real: House, vllm: str) -> None:
    """Sync and async, whole and streamed, a forced tool, and a refusal of vLLM's own."""
    seen = []
    for url in (vllm, f"{real.url}/t/g"):
        with anthropic.Anthropic(base_url=url, api_key="x", max_retries=0) as sdk:
            whole = sdk.messages.create(**SDK)
            with sdk.messages.stream(**SDK) as stream:
                final = stream.get_final_message()
            with pytest.raises(anthropic.BadRequestError) as refused:
                sdk.messages.create(**{**SDK, "extra_body": {"top_k": -7}})
        async with anthropic.AsyncAnthropic(base_url=url, api_key="x", max_retries=0) as sdk_async:
            other = await sdk_async.messages.create(**SDK)
        words = [[block.text for block in reply.content] for reply in (whole, final, other)]  # type: ignore[union-attr]  # the kind that this test makes has it
        assert words[1:] == words[:-1]
        seen.append((words, whole.stop_reason, final.usage.output_tokens))
        assert "top_k" in str(refused.value)
    assert seen[0] == seen[1]
    assert refused.value.body["type"] == "error"  # type: ignore[index]  # the kind that this test makes has it
    assert [call.integrity.missing for call in real.captured] == [()] * 3
    assert len({call.response_ids for call in real.captured}) == 1


def test_a_model_of_the_same_weights_agrees(real: House, tiny_model: Path) -> None:
    """Two turns as the trainer gets them: each trained token's log-probability by transformers, within 1e-4."""
    import torch
    from transformers import AutoModelForCausalLM

    messages, ask = list(SPEECH), {**SDK, "system": "Be brief.", "extra_body": {"temperature": 1.0}}
    for _ in range(2):
        with anthropic.Anthropic(base_url=f"{real.url}/t/g", api_key="x") as sdk:
            reply = sdk.messages.create(**{**ask, "messages": messages})
        messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": "and then?"}]
    calls = folded(real.log)
    assert [step.trainable for _, step in calls] == [True, True]
    whole = prompts({event.call_id: event for event, _ in calls})
    trained = rows([call_tokens(event, whole[event.call_id], "run", 1.0) for event, _ in calls], 0)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    for row in trained:
        ids = torch.tensor(list(row.ids))[None]
        with torch.no_grad():
            scored = model(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0].tolist()
        at = [place for place, masked in enumerate(row.mask) if masked]
        assert at
        assert [row.logprobs[place] for place in at] == pytest.approx([scored[place - 1] for place in at], abs=1e-4)

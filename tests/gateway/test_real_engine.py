"""The gateway before a real vLLM: what the scripted engine pretends, checked against the engine itself."""

import asyncio
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import orjson
import pytest

from datapool.edges import bodies, prompts
from schemas.arrays import count, unpack_floats, unpack_ids
from schemas.events import VersionSpan
from tests.gateway.house import House, until

SECRET = "for this test only"
SPEECH: Any = [{"role": "user", "content": "Say something."}]


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a vLLM with the project's own command line, plugins and a tiny model; its weights are `run/7`."""
    from claw.ports import free_ports
    from rollout.command import arguments, environment
    from rollout.settings import RolloutSettings
    from tests.rollout.tiny_model import make_tiny_model

    folder: Path = tmp_path_factory.mktemp("vllm")
    make_tiny_model(folder / "model")
    settings = RolloutSettings(model=folder / "model", model_id="m", worker_id="w0", kv_cache_bytes="64M")
    (port,) = free_ports(1)
    with (folder / "log").open("wb") as out:
        engine = subprocess.Popen(
            arguments(settings, port), env=environment(settings, SECRET, os.environ), stdout=out, stderr=out
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_healthy(url, engine, folder / "log")
        label = orjson.dumps({"new_version": "run/7"})
        headers = {"content-type": "application/json", "x-claw-control": SECRET}
        urllib.request.urlopen(urllib.request.Request(f"{url}/update_weight_version", label, headers), timeout=10)
        yield url
    finally:
        engine.terminate()
        engine.wait(30)


def _wait_healthy(url: str, engine: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert engine.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])


@pytest.fixture
def real(vllm: str) -> Iterator[House]:
    """A gateway with the real engine as its worker."""
    with House() as running:
        running.worker(vllm, model="policy")
        yield running


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
    assert "prompt_token_ids" not in reply.model_extra
    first, second = real.captured
    assert second.call_id == f"{first.call_id}.1"
    assert first.prompt.full_length == reply.usage.prompt_tokens > 0  # type: ignore[union-attr]
    for event in (first, second):
        assert event.integrity.complete, event.integrity
        length = len(unpack_ids(event.response_ids))
        assert 0 < length <= 12
        assert all(value <= 0 for value in unpack_floats(event.response_logprobs))
        assert event.spans == (VersionSpan(run_id="run", version=7, start=0, end=length),)
        assert event.usage.completion_tokens == length
        assert event.sampling.temperature == 0.9


@pytest.mark.vllm
@pytest.mark.slow
async def test_client_sees_what_the_engine_sent(real: House, vllm: str) -> None:
    """Greedy, direct or through the gateway: the same reply, apart from its id and time."""
    ask = {"model": "policy", "messages": SPEECH, "max_tokens": 8, "temperature": 0}
    replies = []
    async with aiohttp.ClientSession() as session:
        for url in (vllm, f"{real.url}/t/g"):
            async with session.post(f"{url}/v1/chat/completions", json=ask) as reply:
                body = await reply.json()
                for changing in ("id", "created"):
                    body.pop(changing)
                replies.append(body)
    direct, through = replies
    asked_for_by_nobody = {"prompt_token_ids": None}
    assert {**through, **asked_for_by_nobody, "choices": None} == {**direct, **asked_for_by_nobody, "choices": None}
    strip = [{name: value for name, value in choice.items() if name != "token_ids"} for choice in direct["choices"]]
    assert through["choices"] == strip
    assert count(real.captured[0].response_ids) == direct["usage"]["completion_tokens"]


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
async def test_real_streams_are_the_engines_bytes(real: House, vllm: str) -> None:
    """Greedy, direct or through the gateway: the same text in the same kinds of events, no field that nobody asked for.

    Byte for byte is checked with the scripted engine: this one decides by the clock how many tokens a chunk holds.
    """
    ask = {
        "model": "policy",
        "messages": SPEECH,
        "max_tokens": 12,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    streams = []
    async with aiohttp.ClientSession() as session:
        for url in (vllm, f"{real.url}/t/g"):
            async with session.post(f"{url}/v1/chat/completions", json=ask) as reply:
                assert reply.content_type == "text/event-stream"
                streams.append([_comparable(event) for event in (await reply.read()).split(b"\n\n")])
    direct, through = ([event for event in events if event is not None] for events in streams)
    assert through[-1] == direct[-1] == b"[DONE]"
    assert _said(through) == _said(direct)
    (event,) = real.captured
    assert event.integrity.complete, event.integrity
    assert event.spans == (VersionSpan(run_id="run", version=7, start=0, end=count(event.response_ids)),)
    assert event.usage.completion_tokens == count(event.response_ids) > 0


def _comparable(event: bytes) -> object:
    """A chunk without what differs from call to call, and without fields that are null."""
    if event == b"data: [DONE]":
        return b"[DONE]"
    if not event.startswith(b"data: "):
        return None
    chunk = orjson.loads(event[6:])
    for changing in ("id", "created", "prompt_token_ids", "prompt_text"):
        chunk.pop(changing, None)
    for choice in chunk["choices"]:
        choice.pop("token_ids", None)
    return chunk


def _said(events: list[Any]) -> tuple[str, list[Any]]:
    """The text, and each kind of event once, without its text."""
    text, kinds = "", []
    for event in events:
        for choice in event["choices"] if isinstance(event, dict) else ():
            text += choice["delta"].pop("content", None) or ""
        if event not in kinds:
            kinds.append(event)
    return text, kinds


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
                async for _ in reply:  # type: ignore[union-attr]
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
    assert event.status == "aborted"
    assert 0 < count(event.response_ids) < 200
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

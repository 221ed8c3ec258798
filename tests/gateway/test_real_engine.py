"""The gateway before a real vLLM: what the scripted engine pretends, checked against the engine itself."""

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import openai
import orjson
import pytest

from schemas.arrays import count, unpack_floats, unpack_ids
from schemas.events import VersionSpan
from tests.gateway.house import House

SECRET = "for this test only"
SPEECH = [{"role": "user", "content": "Say something."}]


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
            messages=SPEECH,  # type: ignore[arg-type]
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
            await client.chat.completions.create(model="policy", messages=SPEECH, temperature=-1)  # type: ignore[arg-type]
    assert "temperature" in str(refused.value)
    assert [failure.reason for failure in real.failed] == ["refused"]

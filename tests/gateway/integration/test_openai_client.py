"""The OpenAI SDK with nothing changed but its base_url."""

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway.engine import Reply, ScriptedEngine, stream
from tests.gateway.house import House
from tests.lazy_modules import lazy_module
from tests.patience import until

if TYPE_CHECKING:
    import openai
else:
    openai = lazy_module("openai")

MESSAGES: Any = [{"role": "user", "content": "Hello, what can you do?"}]


@pytest.mark.parametrize("suffix", ["", "/v1"])
def test_sync_client(house: House, suffix: str) -> None:
    """Both shapes of the base_url work: with /v1, and without as in the quick start."""
    with openai.OpenAI(base_url=f"{house.url}/traj/group{suffix}", api_key="not-used") as client:
        reply = client.chat.completions.create(model="tiny", messages=MESSAGES)
        assert reply.choices[0].message.content == "hello0"
        assert reply.choices[0].logprobs is None
        assert [model.id for model in client.models.list()] == ["tiny"]
    assert [(event.trajectory_id, event.group_id) for event in house.captured] == [("traj", "group")]


async def test_async_client_and_headers(house: House) -> None:
    """The async client reads x-claw headers from the raw reply, and logprobs when it asks."""
    async with openai.AsyncOpenAI(base_url=f"{house.url}/t/g", api_key="x") as client:
        raw = await client.chat.completions.with_raw_response.create(model="tiny", messages=MESSAGES, logprobs=True)
        assert raw.headers["x-claw-policy-version"] == "run/3"
        logprobs = raw.parse().choices[0].logprobs
        assert logprobs is not None
        assert [token.logprob for token in logprobs.content or []] == [-0.5] * 3


def test_sync_stream(house: House) -> None:
    """A stream through the sync client: deltas as they were sampled, usage as asked for, nothing of ours."""
    with openai.OpenAI(base_url=f"{house.url}/t/g", api_key="x") as client:
        chunks = list(
            client.chat.completions.create(
                model="tiny",
                messages=MESSAGES,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "hello!"
    assert chunks[-1].usage is not None
    assert all("token_ids" not in (choice.model_extra or {}) for chunk in chunks for choice in chunk.choices)
    assert house.captured[0].integrity.complete


async def test_async_stream_left_early(house: House, engine: ScriptedEngine) -> None:
    """Closing an async stream closes the engine's; the SDK's own parser takes n = 2 and logprobs."""
    asks = {"n": 2, "logprobs": True, "return_token_ids": True}
    engine.then(Reply(pieces=stream(asks).pieces[:-2], hang=True))
    async with openai.AsyncOpenAI(base_url=f"{house.url}/t/g", api_key="x") as client:
        chunks = await client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            stream=True,
            n=2,
            logprobs=True,
        )
        seen = [await anext(chunks) for _ in range(4)]
        assert {chunk.choices[0].index for chunk in seen} == {0, 1}
        assert seen[-1].choices[0].logprobs is not None
        await chunks.close()
    await asyncio.to_thread(until, lambda: len(house.captured) == 2)
    await asyncio.to_thread(until, engine.aborted.is_set)
    assert {event.status for event in house.captured} == {"aborted"}


def test_broken_stream_is_an_error_of_the_sdk(house: House, engine: ScriptedEngine) -> None:
    """A stream that breaks raises; no client takes the part for the whole."""
    engine.then(Reply(pieces=stream({"logprobs": True, "return_token_ids": True}).pieces[:3], reset=True))
    with openai.OpenAI(base_url=f"{house.url}/t/g", api_key="x", max_retries=0) as client:
        chunks = client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError) as broken:
            list(chunks)
    assert broken.value.code == "upstream_broken"


def test_errors_are_the_sdks_own(house: House) -> None:
    """Errors arrive as the SDK's exception types, with message, param and code."""
    with openai.OpenAI(base_url=f"{house.url}/t/g/v1", api_key="x", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as bad:
            client.chat.completions.create(model="tiny", messages="hi")  # type: ignore[arg-type]  # a wrong or a partial argument is the case
        assert bad.value.param == "messages"
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="none", messages=MESSAGES)
        assert missing.value.code == "model_not_found"


def test_sdk_retry_after_no_acknowledgement_is_the_same_call(house: House, engine: ScriptedEngine) -> None:
    """The SDK's own retry, which only counts, gets the reply that was sampled first; one event stands in the log."""
    house.log.refusing = True

    with openai.OpenAI(base_url=f"{house.url}/t/g/v1", api_key="x", max_retries=3) as client:
        timer = threading.Timer(0.5, lambda: setattr(house.log, "refusing", False))
        timer.start()
        reply = client.chat.completions.create(model="tiny", messages=MESSAGES)
        timer.join()
    assert reply.choices[0].message.content == "hello0"
    assert len(engine.requests) == 1
    assert len(house.captured) == 1

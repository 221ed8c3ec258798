"""The OpenAI SDK with nothing changed but its base_url."""

import threading

import openai
import pytest

from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House

MESSAGES = [{"role": "user", "content": "Hello, what can you do?"}]


@pytest.mark.parametrize("suffix", ["", "/v1"])
def test_sync_client(house: House, suffix: str) -> None:
    """Both shapes of the base_url work: with /v1, and without as in the quick start."""
    with openai.OpenAI(base_url=f"{house.url}/traj/group{suffix}", api_key="not-used") as client:
        reply = client.chat.completions.create(model="tiny", messages=MESSAGES)  # type: ignore[arg-type]
        assert reply.choices[0].message.content == "hello0"
        assert reply.choices[0].logprobs is None
        assert [model.id for model in client.models.list()] == ["tiny"]
    assert [(event.trajectory_id, event.group_id) for event in house.captured] == [("traj", "group")]


async def test_async_client_and_headers(house: House) -> None:
    """The async client reads x-claw headers from the raw reply, and logprobs when it asks."""
    async with openai.AsyncOpenAI(base_url=f"{house.url}/t/g", api_key="x") as client:
        raw = await client.chat.completions.with_raw_response.create(model="tiny", messages=MESSAGES, logprobs=True)  # type: ignore[arg-type]
        assert raw.headers["x-claw-policy-version"] == "run/3"
        logprobs = raw.parse().choices[0].logprobs
        assert logprobs is not None
        assert [token.logprob for token in logprobs.content or []] == [-0.5] * 3


def test_errors_are_the_sdks_own(house: House) -> None:
    """Errors arrive as the SDK's exception types, with message, param and code."""
    with openai.OpenAI(base_url=f"{house.url}/t/g/v1", api_key="x", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as bad:
            client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)  # type: ignore[arg-type]
        assert bad.value.param == "stream"
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="none", messages=MESSAGES)  # type: ignore[arg-type]
        assert missing.value.code == "model_not_found"


def test_sdk_retry_after_no_acknowledgement_is_the_same_call(house: House, engine: ScriptedEngine) -> None:
    """The SDK's own retry, which only counts, gets the reply that was sampled first; one event stands in the log."""
    house.log.refusing = True

    with openai.OpenAI(base_url=f"{house.url}/t/g/v1", api_key="x", max_retries=3) as client:
        timer = threading.Timer(0.5, lambda: setattr(house.log, "refusing", False))
        timer.start()
        reply = client.chat.completions.create(model="tiny", messages=MESSAGES)  # type: ignore[arg-type]
        timer.join()
    assert reply.choices[0].message.content == "hello0"
    assert len(engine.requests) == 1
    assert len(house.captured) == 1

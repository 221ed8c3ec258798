"""The Anthropic SDK with nothing changed but its base_url."""

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway.engine import Reply, ScriptedEngine
from tests.gateway.house import House
from tests.gateway.speaking import ANTHROPIC
from tests.lazy_modules import lazy_module
from tests.patience import until

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = lazy_module("anthropic")

ASK: dict[str, Any] = ANTHROPIC.ask


@pytest.fixture
def house(speaking_house: House) -> House:
    """A gateway whose worker speaks every protocol."""
    return speaking_house


def client(house: House, retries: int = 0) -> "anthropic.Anthropic":
    return anthropic.Anthropic(base_url=f"{house.url}/traj/group", api_key="not-used", max_retries=retries)


def test_sync(house: House) -> None:
    """Whole, streamed, and by the beta's path."""
    with client(house) as sdk:
        assert sdk.messages.create(**ASK).content[0].text == "hello"  # type: ignore[union-attr]  # the kind that this test makes has it
        with sdk.messages.stream(**ASK) as stream:
            assert list(stream.text_stream) == ["he", "llo"]
            final = stream.get_final_message()
        assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", 3)
        assert sdk.beta.messages.create(**ASK, betas=["x"]).stop_reason == "end_turn"
    calls = house.captured
    assert [(call.trajectory_id, call.group_id) for call in calls] == [("traj", "group")] * 3
    assert all(call.integrity.complete for call in calls)


async def test_async_stream_left_early(house: House, engine: ScriptedEngine) -> None:
    """Closing an async stream closes the engine's."""
    async with anthropic.AsyncAnthropic(base_url=f"{house.url}/t/g", api_key="x") as sdk:
        reply = await sdk.messages.create(**ASK)
        assert reply.content[0].text == "hello"  # type: ignore[union-attr]  # the kind that this test makes has it
        engine.then(Reply(pieces=ANTHROPIC.begun, hang=True))
        events = await sdk.messages.create(**ASK, stream=True)
        assert (await anext(events)).type == "message_start"
        await events.close()
    await asyncio.to_thread(until, engine.aborted.is_set)
    await asyncio.to_thread(until, lambda: len(house.captured) == 2)
    assert house.captured[1].status == "aborted"


@pytest.mark.parametrize("streamed", [False, True])
def test_the_sdks_own_retry_is_the_same_call(house: House, engine: ScriptedEngine, streamed: bool) -> None:
    """After a 503 it waits and counts: it gets the reply that was sampled first. Streams are not retried by it: they raise."""
    house.log.refusing = True
    with client(house, retries=3) as sdk:
        if streamed:
            with pytest.raises(anthropic.APIStatusError) as raised:
                list(sdk.messages.create(**ASK, stream=True))
            assert raised.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]  # the kind that this test makes has it
            return
        timer = threading.Timer(0.3, lambda: setattr(house.log, "refusing", False))
        timer.start()
        assert sdk.messages.create(**ASK).content[0].text == "hello"  # type: ignore[union-attr]  # the kind that this test makes has it
        timer.join()
    assert len(engine.requests) == len(house.captured) == 1


def test_errors_are_the_sdks_own(house: House, engine: ScriptedEngine) -> None:
    """Each of its exception types, with the message; a stream that breaks raises."""
    with client(house) as sdk:
        with pytest.raises(anthropic.BadRequestError, match="messages must be a list"):
            sdk.messages.create(**{**ASK, "messages": {}})
        with pytest.raises(anthropic.NotFoundError, match="no server has the model"):
            sdk.messages.create(**{**ASK, "model": "none"})
        engine.then(Reply(pieces=ANTHROPIC.begun, reset=True))
        with pytest.raises(anthropic.APIStatusError) as broken:
            list(sdk.messages.create(**ASK, stream=True))
        assert broken.value.body["error"]["type"] == "api_error"  # type: ignore[index]  # the kind that this test makes has it

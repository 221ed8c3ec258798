"""A request that is sent again: what it is the same as, whatever the protocol, and where no id is in its path."""

import json
from typing import Any

import aiohttp
import pytest

from claw_r1.schemas.api_keys import ApiKey
from claw_r1.schemas.events import CallCaptured
from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House
from tests.gateway.speaking import ANTHROPIC, CHAT

BOTH: dict[str, Any] = ANTHROPIC.ask
"""A body of chat as well as of messages."""


@pytest.fixture
def house(speaking_house: House) -> House:
    """A gateway whose worker speaks every protocol."""
    return speaking_house


async def ask(house: House, path: str, body: object = BOTH, **headers: str) -> tuple[int, Any, dict[str, str]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with aiohttp.ClientSession() as session, session.post(house.url + path, json=body, headers=named) as reply:
        return reply.status, json.loads(await reply.read()), {k.lower(): v for k, v in reply.headers.items()}


def calls(house: House) -> list[tuple[str, str]]:
    return [(call.protocol, call.call_id) for call in house.events(CallCaptured)]


async def test_another_protocols_request_is_another_call(house: House) -> None:
    """Of one trajectory and with the same bytes: a counted retry gets its own protocol's reply, a key is refused."""
    assert (await ask(house, CHAT.path))[1] == CHAT.body
    status, reply, _ = await ask(house, ANTHROPIC.path, x_stainless_retry_count="1")
    assert (status, reply) == (200, ANTHROPIC.body)
    assert [protocol for protocol, _ in calls(house)] == ["chat", "messages"]
    assert (await ask(house, CHAT.path, idempotency_key="k"))[1] == CHAT.body
    status, reply, _ = await ask(house, ANTHROPIC.path, idempotency_key="k")
    assert (status, reply["type"]) == (400, "error")
    assert "used for another request" in reply["error"]["message"]
    assert (await ask(house, CHAT.path, idempotency_key="k"))[1] == CHAT.body


@pytest.mark.parametrize("key", [None, {"idle_s": 60.0}, {"scope": "team"}, {"scope": "team", "idle_s": 60.0}])
async def test_a_key_is_the_same_call_where_the_path_has_no_ids(
    house: House, engine: ScriptedEngine, key: dict[str, Any] | None
) -> None:
    """One generation and one trajectory, in every process; without an idempotency key each is its own. Other words under it are
    refused; of callers without an API key, who do not know of each other, they are another call."""
    api_key = key and ApiKey("agent", b"digest", name="n", **key)
    house.keys.everyones = api_key
    (_, first, told), (_, again, told_again) = [
        await ask(house, "/v1/chat/completions", idempotency_key="k") for _ in range(2)
    ]
    assert first == again
    for header in ("x-claw-trajectory", "x-claw-group", "x-claw-call-id"):
        assert told[header] == told_again[header]
    assert len(engine.requests) == 1
    assert {call.trajectory_id for call in house.captured} == {house.captured[0].trajectory_id}
    status, reply, _ = await ask(house, "/v1/chat/completions", {**BOTH, "n": 1}, idempotency_key="k")
    assert (status, reply.get("error", {}).get("code")) == (
        (200, None) if key is None else (400, "idempotency_key_reused")
    )
    others = {
        (await ask(house, "/v1/chat/completions", **each))[2]["x-claw-trajectory"]
        for each in ({}, {"idempotency_key": "l"})
    }
    assert len(others | {told["x-claw-trajectory"]}) == 3
    with House(log=house.log) as second:
        second.worker(engine.url)
        second.keys.everyones = api_key
        elsewhere = (await ask(second, "/v1/chat/completions", idempotency_key="k"))[2]
        assert elsewhere["x-claw-call-id"] == told["x-claw-call-id"]


async def test_a_later_turn_that_is_asked_again_stays_in_its_conversation(house: House, engine: ScriptedEngine) -> None:
    """By its messages; and the conversation goes on from there."""
    key = ApiKey("agent", b"digest", scope="team")
    house.keys.everyones = key
    messages, trajectories = list(BOTH["messages"]), set()
    for turn in range(3):
        asked = {**BOTH, "messages": messages}
        told = [await ask(house, "/v1/chat/completions", asked, idempotency_key=f"k{turn}") for _ in range(2)]
        trajectories |= {headers["x-claw-trajectory"] for _, _, headers in told}
        messages = [*messages, told[0][1]["choices"][0]["message"], {"role": "user", "content": str(turn)}]
    assert len(trajectories) == 1
    assert len(engine.requests) == 3

"""Rewards that ride with a call or a completion: stored before anything else, all or none, as if each had come by itself."""

import json
from typing import Any

import pytest

from claw_r1.eventlog.errors import LogError
from claw_r1.eventlog.memory import MemoryLog, MemoryProducer
from claw_r1.eventlog.records import Position
from claw_r1.schemas.events import Event, RewardAssigned, TrajectoryCompleted
from claw_r1.schemas.topics import REWARDS, Topic
from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House
from tests.gateway.http.test_connection import statuses
from tests.gateway.raw import CHAT, GOOD, say, send

COMPLETE, ALONE = "/t/g/v1/complete_trajectory", "/t/g/v1/rewards"
TWO = [{"value": 0.5, "call_id": "c1", "name": "step", "revision": 7}, {"value": -1, "name": "ü"}]


async def ask(house: House, path: str, rewards: object, body: bytes = GOOD, **headers: str) -> tuple[int, Any]:
    """The answer to a request with these rewards in its header; text is taken as it is."""
    riding = rewards if isinstance(rewards, str) else json.dumps(rewards)
    status, reply = await send(house, "POST", path, body, x_claw_rewards=riding, **headers)
    return status, json.loads(reply)


def given(house: House) -> list[tuple[float | None, str, str | None, int]]:
    return [(r.value, r.name, r.call_id, r.revision) for r in house.events(RewardAssigned, REWARDS)]


@pytest.mark.parametrize(("path", "body"), [(CHAT, GOOD), (COMPLETE, b'{"calls": 0, "rewards": 2}')])
async def test_rewards_ride_with_a_call_and_with_a_completion(house: House, path: str, body: bytes) -> None:
    """Each is an event of its own, of the trajectory of the path, and stored before that of the request."""
    assert (await ask(house, path, TWO, body))[0] == 200
    assert given(house) == [(0.5, "step", "c1", 7), (-1.0, "ü", None, 0)]
    rewards = house.events(RewardAssigned, REWARDS)
    assert {(reward.trajectory_id, reward.group_id, reward.source) for reward in rewards} == {("t", "g", "agent")}
    (after,) = house.captured or house.events(TrajectoryCompleted)
    assert max(reward.envelope.occurred_at_us for reward in rewards) < after.envelope.occurred_at_us


async def test_a_repeated_request_repeats_its_rewards(house: House, engine: ScriptedEngine) -> None:
    """Under an idempotency key each has the event id that it has at every gateway, so the folds count it once; a reward more is
    a different body."""
    for _ in range(2):
        assert (await ask(house, CHAT, TWO, x_claw_idempotency_key="k"))[0] == 200
    with House() as other:
        assert (await ask(other, COMPLETE, TWO, b"", x_claw_idempotency_key="k"))[0] == 200
        ids = [
            reward.envelope.event_id
            for reward in (*house.events(RewardAssigned, REWARDS), *other.events(RewardAssigned, REWARDS))
        ]
    assert len(ids) == 6
    assert len(set(ids)) == 2
    assert len(engine.requests) == 1
    status, reply = await ask(house, CHAT, [{"value": 9}], x_claw_idempotency_key="k")
    assert (status, reply["error"]["code"]) == (409, "idempotency_key_reused")


@pytest.mark.parametrize(
    "rewards",
    [
        "{",
        '[{"value": NaN}]',
        "null",
        {"value": 1},
        [{}],
        [{"value": "1"}],
        [{"value": 1, "unknown": 1}],
        [{"value": 1}, {"value": 1, "source": "judge"}],
        [{"value": 1, "name": "completion"}],
        [{"value": 1, "revision": 1 << 62}],
        [{"value": 1}] * 65,
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETE])
async def test_one_bad_reward_refuses_the_request(
    house: House, engine: ScriptedEngine, path: str, rewards: object
) -> None:
    """Nothing is stored, no engine is asked, and the refusal says where the fault is."""
    status, reply = await ask(house, path, rewards)
    assert status in {400, 403}
    assert reply["error"]["param"]
    assert given(house) == house.captured == house.events(TrajectoryCompleted) == engine.requests == []


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/t/v1/chat/completions", ALONE, "/groups", "/t/g/v1/submit_steps"]
)
async def test_rewards_that_nobody_would_read_are_refused(house: House, path: str) -> None:
    """Another request, or a path that does not name the trajectory whole, takes none along; to drop them would lose them."""
    status, reply = await ask(house, path, TWO)
    assert (status, reply["error"]["param"]) == (400, "x-claw-rewards")
    assert given(house) == house.captured == []


class _NoRewards(MemoryProducer):
    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position:
        if isinstance(event, RewardAssigned):
            raise LogError("the broker is away")
        return await super().publish(topic, key, event)


class _Log(MemoryLog):
    def producer(self) -> MemoryProducer:
        return _NoRewards(self)


@pytest.mark.parametrize("path", [CHAT, COMPLETE])
async def test_a_request_whose_rewards_cannot_be_stored_is_not_done(engine: ScriptedEngine, path: str) -> None:
    """The client is told to come again, and nothing was generated or completed meanwhile."""
    with House(_Log()) as house:
        house.worker(engine.url)
        status, reply = await ask(house, path, TWO)
        assert (status, reply["error"]["code"]) == (503, "not_captured")
        assert house.captured == house.events(TrajectoryCompleted) == engine.requests == []


async def test_rewards_in_two_headers_are_refused(house: House) -> None:
    """Neither is read without the other."""
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(GOOD)}\r\n".encode()
    twice = b'x-claw-rewards: [{"value": 1}]\r\n' * 2
    assert statuses(await say(house.url, head + twice + b"\r\n" + GOOD)) == [400]
    assert given(house) == house.captured == []


async def test_only_a_completion_by_post_takes_rewards(house: House) -> None:
    """Another method does nothing, so it stores nothing."""
    status, reply = await send(house, "PUT", COMPLETE, b"", x_claw_rewards=json.dumps(TWO))
    assert (status, json.loads(reply)["error"]["param"]) == (400, "x-claw-rewards")
    assert given(house) == []

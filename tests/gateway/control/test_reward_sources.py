"""Whose word a reward is: which sources each caller may speak as, and that a number is a number."""

import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from pydantic import ValidationError

from claw_r1.gateway.settings import GatewaySettings
from claw_r1.schemas.api_keys import Role, new_key
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.events import GroupOpened, RewardAssigned, TrajectoryCompleted, TrajectoryStarted
from claw_r1.schemas.topics import REWARDS
from tests.gateway.control.test_feedback import annotator
from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House, post
from tests.gateway.http.test_auth_topic import record

REWARDS_OF, STEPS = "/t/g/v1/rewards", "/t/g/v1/submit_steps"
STEP = {"prompt_ids": [1], "response_ids": [2], "rollout_log_probs": [-0.1]}
CALLERS = (None, "agent", "annotator", "operator")
OWN = {None: ("agent", "env", "user"), "agent": ("agent", "env", "user"), "annotator": ("human:ada",)}
SOURCES = (
    "agent",
    "env",
    "user",
    "rule",
    "judge",
    "model",
    "my-scorer",
    "human:ada",
    "human:ben",
    "Rule",
    " rule",
    "human:",
)
Keys = dict[str | None, str]


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[House, Keys]]:
    """A gateway with a key of each role that judges; callers of this machine need none."""
    roles: tuple[Role, ...] = ("agent", "annotator", "operator")
    keys: Keys = {role: new_key(role)[0] for role in roles}
    with ScriptedEngine() as engine, House(upstreams=engine.url) as house:
        for role in ("agent", "operator"):
            house.keys.apply(record(keys[role], role=role))
        house.keys.apply(annotator(keys["annotator"], "ada"))
        yield house, keys


async def sent(house: House, key: str | None, path: str, body: object) -> tuple[int, dict[str, Any]]:
    headers = {"x-api-key": key} if key else {}
    async with aiohttp.ClientSession(headers=headers) as session, session.post(house.url + path, json=body) as reply:
        return reply.status, json.loads(await reply.text())


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("caller", CALLERS)
async def test_a_caller_speaks_as_its_own_sources(guarded: tuple[House, Keys], caller: str | None, source: str) -> None:
    """Agents and callers without a key as those of the list, annotators as themselves, operators as any; else 403, and
    nothing is stored."""
    house, keys = guarded
    before = len(house.events(RewardAssigned, REWARDS))
    status, reply = await sent(house, keys.get(caller), REWARDS_OF, {"value": 99, "source": source, "name": "exact"})
    if source in OWN.get(caller, SOURCES):
        assert status == 200, reply
        assert house.events(RewardAssigned, REWARDS)[-1].source == source
    else:
        assert status == 403
        assert repr(source) in reply["error"]["message"] or caller == "annotator"
        assert len(house.events(RewardAssigned, REWARDS)) == before


@pytest.mark.parametrize("caller", [None, "agent"])
async def test_no_agents_word_is_ahead_of_its_time(guarded: tuple[House, Keys], caller: str | None) -> None:
    """A revision up to the present time is one; the next word of whoever is trusted outranks each."""
    house, keys = guarded
    for revision, status in ((1, 200), (now_us(), 200), (now_us() + 10**9, 403), ((1 << 63) - 1, 403)):
        answered, reply = await sent(house, keys.get(caller), REWARDS_OF, {"value": 1, "revision": revision})
        assert answered == status, reply
    assert reply["error"]["param"] == "revision"
    assert (await sent(house, keys["operator"], REWARDS_OF, {"value": 1, "revision": (1 << 63) - 1}))[0] == 200


@pytest.mark.parametrize("caller", [None, "agent", "operator"])
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/t/g/v1/complete_trajectory", TrajectoryCompleted),
        ("/t/g/v1/register_trajectory", TrajectoryStarted),
        ("/init_trajectory", TrajectoryStarted),
        ("/groups", GroupOpened),
    ],
)
async def test_a_lifecycles_word_takes_a_revision(
    guarded: tuple[House, Keys], caller: str | None, path: str, kind: type[Any]
) -> None:
    """An operator's, so that a correction does not depend on the clocks of two gateways. Of an agent the smallest would outrank
    whoever plays it."""
    house, keys = guarded
    assert (await sent(house, keys.get(caller), path, {"revision": 0}))[0] in (200, 201)
    for wrong in (True, "1", -1, 1 << 63):
        assert (await sent(house, keys.get(caller), path, {"revision": wrong}))[0] == 400
    for revision in (7, (1 << 63) - 1):
        status, reply = await sent(house, keys.get(caller), path, {"revision": revision})
        if caller == "operator":
            assert status in (200, 201), reply
            assert house.events(kind)[-1].revision == revision
        else:
            assert (status, reply["error"]["param"]) == (403, "revision")


@pytest.mark.parametrize("wrong", [True, False, "0.5", "1", [1], {}, "null"])
async def test_what_is_no_number_is_no_reward(guarded: tuple[House, Keys], wrong: object) -> None:
    """As a reward, a completion's, a step's, a score and a strength: 400, and nothing is stored."""
    house, keys = guarded
    before = len(house.raw_records())
    for path, body in (
        (REWARDS_OF, {"value": wrong}),
        (REWARDS_OF, {"value": 1, "revision": wrong}),
        (REWARDS_OF, {"value": 1, "step_index": wrong}),
        ("/t/g/v1/complete_trajectory", {"reward": wrong}),
        ("/t/g/v1/complete_trajectory", {"calls": wrong}),
        (STEPS, {"steps": [{**STEP, "reward": wrong}]}),
        (STEPS, {"steps": [{**STEP, "policy_version": wrong}]}),
        (STEPS, {"steps": [{**STEP, "sampling": {"temperature": wrong}}]}),
        ("/t/g/v1/feedback", {"score": wrong, "who": "ada"}),
        ("/t/g/v1/feedback", {"scores": {"style": wrong}, "who": "ada"}),
        ("/groups/g/preferences", {"chosen": "t", "rejected": "u", "strength": wrong, "who": "ada"}),
        ("/groups", {"size": wrong}),
        ("/groups", {"deadline_s": wrong}),
    ):
        status, reply = await sent(house, keys["operator"], path, body)
        assert status == 400, (path, body, reply)
    assert len(house.raw_records()) == before


async def test_a_reward_is_taken_back_by_null(guarded: tuple[House, Keys]) -> None:
    """In its slot, as anywhere else; a reward without any value is a mistake."""
    house, keys = guarded
    assert (await sent(house, None, REWARDS_OF, {"value": 1, "name": "style"}))[0] == 200
    assert (await sent(house, None, REWARDS_OF, {"value": None, "name": "style", "revision": 1}))[0] == 200
    last = house.events(RewardAssigned, REWARDS)[-1]
    assert (last.value, last.name, last.source, last.revision) == (None, "style", "agent", 1)
    assert (await sent(house, keys["annotator"], REWARDS_OF, {"value": None, "name": "style"}))[0] == 200
    assert (await sent(house, None, REWARDS_OF, {"name": "style"}))[0] == 400


async def test_a_list_without_the_agent_leaves_it_no_word(engine: ScriptedEngine) -> None:
    """Neither as a completion's reward nor as a step's; it still completes what it did."""
    with House(upstreams=engine.url, reward_sources="env") as house:
        for path, body in (
            (REWARDS_OF, {"value": 1}),
            ("/t/g/v1/complete_trajectory", {"reward": 1}),
            (STEPS, {"steps": [{**STEP, "reward": 1}]}),
        ):
            status, reply, _ = await post(house, path, body)
            assert (status, reply["error"]["code"]) == (403, "not_its_source")
        assert house.raw_records() == b""
        assert (await post(house, REWARDS_OF, {"value": 1, "source": "env"}))[0] == 200
        assert (await post(house, "/t/g/v1/complete_trajectory", {}))[0] == 200
        assert [event.reward for event in house.events(TrajectoryCompleted)] == [None]


@pytest.mark.parametrize("sources", ["agent,rule", "judge", "human:ada", "human:"])
def test_the_list_holds_no_scorer_and_no_person(sources: str) -> None:
    """Whoever wants that gives a key instead."""
    with pytest.raises(ValidationError, match="scorer's or a person's"):
        GatewaySettings(reward_sources=sources)  # type: ignore[arg-type]  # fields by name, of any type

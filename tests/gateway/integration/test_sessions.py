"""Callers end to end: what the log says of them, and who completes them."""

import json
from collections.abc import Sequence
from typing import Any

import aiohttp
import pytest

from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.schemas.api_keys import ApiKey
from claw_r1.schemas.envelopes import decision_id, envelope
from claw_r1.schemas.events import CallCaptured, FactPosition, KeyRecorded, StepRecord, TrajectoryStarted
from tests.gateway.engine import Reply, ScriptedEngine
from tests.gateway.house import House, record

ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
KEY = ApiKey("agent", b"digest", scope="team", idle_s=30.0)


async def ask(house: House, body: dict[str, Any] = ASK, path: str = "", **headers: str) -> dict[str, str]:
    """The reply's headers, and its status."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"{house.url}{path}/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=named) as reply:
        text = await reply.text()
        return {**{name.lower(): value for name, value in reply.headers.items()}, "status": str(reply.status), "": text}


@pytest.fixture
def keyed(house: House) -> House:
    """A gateway where every request comes under one key."""
    house.keys.everyones = KEY
    return house


async def test_what_is_stored_of_a_caller(keyed: House) -> None:
    """Identity, its source, the program, the kind that the client states and the parent; tags are the client's."""
    headers = {
        "x_session_id": "s",
        "x_parent_session_id": "p",
        "user_agent": "opencode/1.18 ai-sdk",
        "x_claw_tags": "a",
    }
    reply = await ask(keyed, **headers)
    (call,) = keyed.captured
    assert (call.group_id, call.trajectory_id, call.identity_source) == ("team/s", "team/s", "session:x-session-id")
    assert (call.client, call.call_kind, call.parent_trajectory) == ("opencode/1.18", "subagent", "team/p")
    assert call.tags == ("a",)
    assert (reply["x-claw-trajectory"], reply["x-claw-group"]) == ("team/s", "team/s")
    again = await ask(keyed, x_claw_trajectory=reply["x-claw-trajectory"])
    assert again["x-claw-trajectory"] == "team/s"
    assert keyed.captured[-1].identity_source == "headers"


async def test_a_title_that_is_asked_for_first_is_a_side_call_in_the_pool(house: House) -> None:
    """It is answered before the call with tools is sent: the gateway cannot know it, the fold does, in either order."""
    await ask(house, path="/t/g")
    await ask(house, {**ASK, "tools": TOOLS}, path="/t/g")
    title, call = house.captured
    assert [(one.call_kind, one.has_tools, one.tags) for one in (title, call)] == [(None, False, ()), (None, True, ())]
    for order in ([title, call], [call, title]):
        steps = pooled(order)
        assert (steps[title.call_id].tags, steps[call.call_id].tags) == (("kind:side",), ())


def pooled(calls: Sequence[CallCaptured]) -> dict[str, StepRecord]:
    """Their rows by id, delivered in this order."""
    state = None
    for call in calls:
        state = fold(state, call, FactPosition(topic="claw.calls", partition=0, offset=int(call.has_tools)))
    assert state is not None
    return {record.call_id: record for record in project(state).values() if isinstance(record, StepRecord)}


async def test_a_contradiction_names_both(house: House) -> None:
    """Nothing is guessed, and nothing stored."""
    reply = await ask(house, path="/t1/g1", x_claw_trajectory="t2")
    error = json.loads(reply[""])["error"]
    assert (reply["status"], error["param"]) == ("400", "x-claw-trajectory")
    assert "'t1'" in error["message"]
    assert "'t2'" in error["message"]
    assert house.captured == []


async def test_a_session_begins_once(keyed: House, engine: ScriptedEngine) -> None:
    """Before its first call is stored, under an id that every process would give; not for what a path names."""
    engine.then(*[Reply(b"boom", status=500)] * 3)
    assert (await ask(keyed, x_session_id="s"))["status"] == "502"
    assert keyed.events(TrajectoryStarted) == []
    for _ in range(2):
        await ask(keyed, x_session_id="s", x_claw_channel="c", x_claw_agent="a")
    await ask(keyed, path="/team%2Ft/team%2Fg", x_session_id="s")
    (event,) = keyed.events(TrajectoryStarted)
    assert (event.group_id, event.trajectory_id, event.idle_s) == ("team/s", "team/s", 30.0)
    assert (event.channel, event.agent) == ("c", "a")
    assert event.envelope.event_id == decision_id("session", "team/s", "team/s")


async def test_the_word_of_an_app_outlasts_what_processes_write_of_its_session(keyed: House) -> None:
    """A worker that meets the session later writes its start again, dated later: an opt-out is an opt-out in every order."""
    word = {"tags": ["no-train"], "task": {"ticket": 7}, "run_id": "live"}
    path = f"{keyed.url}/team%2Fs/team%2Fs/v1/register_trajectory"
    async with aiohttp.ClientSession() as session, session.post(path, json=word) as reply:
        assert reply.status == 200
    await ask(keyed, x_session_id="s")
    app, begun = keyed.events(TrajectoryStarted)
    assert app.envelope.occurred_at_us <= begun.envelope.occurred_at_us
    for order in ([app, begun], [begun, app]):
        state = None
        for offset, fact in enumerate(order):
            state = fold(state, fact, FactPosition(topic="claw.calls", partition=0, offset=offset))
        assert state is not None
        won = state.trajectories["team/s"].registration
        assert (won.tags, won.task, won.run_id, won.idle_s) == (("no-train",), '{"ticket":7}', "live", 30.0)


@pytest.mark.parametrize(
    ("path", "idle_s"),
    [
        ("/team%2Fs/team%2Fg", 30.0),
        ("/team:p%2Fs/team:g", 30.0),
        ("/team:lane-1/team:lane-1", 30.0),
        ("/team:t/team:t", None),
        ("/team/team", None),
    ],
)
async def test_a_session_that_an_app_registers_is_complete_after_the_silence_of_its_key(
    keyed: House, path: str, idle_s: float | None
) -> None:
    """What a path names is completed by whoever named it; a number of the app's own counts everywhere."""
    for body in ({}, {"idle_s": 600}):
        url = f"{keyed.url}{path}/v1/register_trajectory"
        async with aiohttp.ClientSession() as session, session.post(url, json=body) as reply:
            assert reply.status == 200
    assert [event.idle_s for event in keyed.events(TrajectoryStarted)] == [idle_s, 600.0]


async def test_an_app_with_a_key_of_its_own_leaves_a_session_its_silence(house: House) -> None:
    """One that judges for many keys has neither scope nor silence; whose session it registers says the id."""
    digest = "d1" * 32
    team = KeyRecorded(envelope=envelope("test"), digest=digest, name="t", role="agent", scope="team", idle_s=30.0)
    house.keys.apply(record(team, digest.encode()))
    house.keys.everyones = ApiKey("operator", b"e" * 32, name="app")
    url = f"{house.url}/team%2Fs/team%2Fs/v1/register_trajectory"
    async with aiohttp.ClientSession() as session, session.post(url, json={"task": {"ticket": 7}}) as reply:
        assert reply.status == 200
    assert [event.idle_s for event in house.events(TrajectoryStarted)] == [30.0]


async def test_a_session_that_could_not_begin_begins_with_the_next_call(keyed: House) -> None:
    """No call is stored of a session that nobody would complete."""
    keyed.log.refusing = True
    assert (await ask(keyed, x_session_id="s"))["status"] == "503"
    keyed.log.refusing = False
    await ask(keyed, x_session_id="s")
    assert len(keyed.events(TrajectoryStarted)) == len(keyed.captured) == 1


@pytest.mark.parametrize("group", [{}, {"x_claw_group": "team/g"}], ids=["own", "named"])
async def test_a_conversation_without_a_name_is_one_trajectory(
    keyed: House, engine: ScriptedEngine, group: dict[str, str]
) -> None:
    """Turns continue each other by their messages; a first turn whose reply was lost is asked again, not begun again."""
    engine.then(*[Reply(b"boom", status=500)] * 3)
    lost = await ask(keyed, **group)
    first = await ask(keyed, **group)
    assert (lost["status"], lost["x-claw-call-id"]) == ("502", first["x-claw-call-id"])
    answer = json.loads(first[""])["choices"][0]["message"]
    await ask(keyed, {**ASK, "messages": [*ASK["messages"], answer, {"role": "user", "content": "more"}]}, **group)
    calls = keyed.captured
    assert [call.identity_source for call in calls] == ["lineage"] * 2
    assert {call.trajectory_id for call in (*calls, *keyed.failed)} == {first["x-claw-trajectory"]}
    assert len(keyed.events(TrajectoryStarted)) == 1


@pytest.mark.parametrize(
    ("endpoint", "body", "trajectory_id"),
    [
        ("chat/completions", {**ASK, "prompt_cache_key": "c:3"}, "team/c"),
        ("completions", {"model": "tiny", "prompt": "hi", "user": "u"}, "team/u"),
        ("responses", {"model": "tiny", "input": "hi", "prompt_cache_key": "c"}, "team/c"),
        ("messages", {**ASK, "max_tokens": 9, "metadata": {"user_id": '{"session_id": "m"}'}}, "team/m"),
    ],
)
async def test_every_protocol_hands_over_its_hints(
    keyed: House, engine: ScriptedEngine, endpoint: str, body: dict[str, Any], trajectory_id: str
) -> None:
    """What the fields say counts, however a protocol reads them."""
    engine.default = lambda _: Reply(b"boom", status=500)
    async with aiohttp.ClientSession() as session, session.post(f"{keyed.url}/v1/{endpoint}", json=body) as reply:
        assert reply.status in (500, 502)
    assert [failure.trajectory_id for failure in keyed.failed] == [trajectory_id]

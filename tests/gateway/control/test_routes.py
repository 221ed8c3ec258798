"""Groups, trajectories, rewards and health over HTTP."""

import asyncio

import aiohttp
import pytest

from claw_r1.gateway.paths import ANYWHERE, OWN_ENDPOINTS
from claw_r1.schemas.events import GroupOpened, RewardAssigned, TrajectoryCompleted, TrajectoryStarted
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import CALLS, REWARDS
from tests.gateway.house import House, group, post, record, started
from tests.patience import until


@pytest.mark.parametrize("prefix", ["/t1/g1/v1", "/t1/g1"])
async def test_trajectory_from_start_to_reward(house: House, prefix: str) -> None:
    """Register, complete and reward become events under the group's key, in this order."""
    started_as = {
        "agent": "a",
        "channel": "val",
        "task": {"x": [1]},
        "tags": ["t"],
        "run_id": "r",
        "metadata": {"m": 1},
    }
    status, reply, _ = await post(house, f"{prefix}/register_trajectory", started_as)
    assert status == 200
    done = {"reward": 0.5, "status": "failed", "calls": 3, "rewards": 1, "channel": "val", "run_id": "r"}
    assert (await post(house, f"{prefix}/complete_trajectory", done))[0] == 200
    reward = {"value": 1, "name": "style", "source": "env", "call_id": "c1", "revision": 2, "metadata": {"why": "ü"}}
    assert (await post(house, f"{prefix}/rewards", reward))[0] == 200
    (start,), (end,) = house.events(TrajectoryStarted), house.events(TrajectoryCompleted)
    assert reply == {"event_id": start.envelope.event_id}
    assert (start.trajectory_id, start.group_id, start.agent, start.channel, start.tags) == (
        "t1",
        "g1",
        "a",
        "val",
        ("t",),
    )
    assert (start.task, start.metadata, start.envelope.run_id) == ('{"x":[1]}', '{"m":1}', "r")
    assert (end.status, end.calls, end.rewards, end.reward) == ("failed", 3, 1, 0.5)
    (given,) = house.events(RewardAssigned, REWARDS)
    assert (given.value, given.name, given.source, given.call_id, given.revision) == (1.0, "style", "env", "c1", 2)
    keys = {record.key for topic in (CALLS, REWARDS) for record in house.log.reader([topic]).read_to_end()}
    assert keys == {group_key("g1")}


async def test_a_completions_reward_is_corrected_by_completing_again(house: House) -> None:
    """Its slot cannot be filled by hand: the refusal says what to do instead, and nothing is written."""
    status, reply, _ = await post(house, "/t/g/rewards", {"value": 1, "name": "completion"})
    assert (status, reply["error"]["type"]) == (400, "invalid_request_error")
    assert "complete the trajectory again" in reply["error"]["message"]
    assert house.events(RewardAssigned, REWARDS) == []
    for body in ({"source": "env"}, {"call_id": "c1"}, {"step_index": 0}):
        assert (await post(house, "/t/g/rewards", {"value": 1, "name": "completion", **body}))[0] == 200


async def test_bodies_are_optional_and_headers_fill_in(house: House) -> None:
    """Register and complete work without a body; channel, agent and run come from headers then."""
    assert (await post(house, "/t1/g1/register_trajectory", agent="a", channel="val", run_id="r"))[0] == 200
    async with aiohttp.ClientSession() as session, session.post(f"{house.url}/t1/g1/complete_trajectory") as reply:
        assert reply.status == 200
    (start,), (end,) = house.events(TrajectoryStarted), house.events(TrajectoryCompleted)
    assert (start.agent, start.channel, start.envelope.run_id) == ("a", "val", "r")
    assert (end.status, end.calls, end.reward) == ("completed", None, None)


async def test_group_is_opened(house: House) -> None:
    """A group without a run is always admitted; an id is made where none is given."""
    body = {"group_id": "g/1", "size": 4, "channel": "val", "task": {"q": 1}, "deadline_s": 60, "tags": ["x"]}
    status, reply, _ = await post(house, "/groups", body)
    assert (status, reply) == (201, {"group_id": "g/1"})
    status, reply, _ = await post(house, "/v1/groups", {})
    named, unnamed = sorted(house.events(GroupOpened), key=lambda event: event.group_id != "g/1")
    assert (named.expected_size, named.channel, named.task, named.tags) == (4, "val", '{"q":1}', ("x",))
    assert named.deadline_us is not None
    assert 59e6 < named.deadline_us - named.envelope.occurred_at_us < 61e6
    assert (unnamed.group_id, unnamed.expected_size, unnamed.channel) == (reply["group_id"], 8, "train")


@pytest.mark.parametrize("channel", ["train", "val"])
async def test_a_group_that_another_run_opened_is_not_opened_again(house: House, channel: str) -> None:
    """Not by a run, and not by nobody's: its owner may declare it anew. What the pool knows counts like an own opening."""
    house.admission.apply(record(started("r", 0, 1)))
    house.admission.apply(record(group("pooled", run="elsewhere")))
    assert (await post(house, "/groups", {"group_id": "g", "channel": channel}, run_id="r"))[0] == 201
    for named, by in (("g", {"run_id": "s"}), ("g", {}), ("pooled", {"run_id": "r"})):
        status, reply, _ = await post(house, "/groups", {"group_id": named, "admission": False}, **by)
        assert (status, reply["error"]["code"]) == (409, "group_of_other_run"), (named, by)
        assert "was opened by run" in reply["error"]["message"]
    again = await post(house, "/groups", {"group_id": "g", "channel": channel, "size": 3}, run_id="r")
    assert again[0] == 201
    assert [event.expected_size for event in house.events(GroupOpened)] == [8, 3]


async def test_repeated_request_is_the_same_fact(house: House) -> None:
    """Under one idempotency key, a group keeps its id and room, and every event its event id."""
    house.admission.apply(record(started("r", 0, 1)))
    replies = [await post(house, "/groups", {"run_id": "r"}, idempotency_key="k") for _ in range(2)]
    assert [status for status, _, _ in replies] == [201, 201]
    assert replies[0][1] == replies[1][1]
    assert (await post(house, "/groups", {"run_id": "r"}, idempotency_key="k2"))[0] == 429
    for path, body in (("complete_trajectory", {"calls": 1}), ("rewards", {"value": 1}), ("register_trajectory", {})):
        event_ids = [(await post(house, f"/t/g/{path}", body, idempotency_key="k"))[1]["event_id"] for _ in range(2)]
        assert len(set(event_ids)) == 1
    assert len({event.envelope.event_id for event in house.events(GroupOpened)}) == 1


async def test_groups_of_a_run_wait_for_room(house: House) -> None:
    """429 with Retry-After while the run is full or unknown; nothing is written then; val and unadmitted groups pass."""
    wanted = {"run_id": "r"}
    status, reply, headers = await post(house, "/groups", wanted)
    assert (status, reply["error"]["code"], headers["retry-after"]) == (429, "run_unknown", "1")
    assert reply["error"]["retry_after_s"] == 0.2
    house.admission.apply(record(started("r", 0, 2)))
    statuses = [(await post(house, "/groups", wanted))[0] for _ in range(4)]
    assert statuses == [201, 201, 429, 429]
    assert (await post(house, "/groups", {"run_id": "r", "channel": "val"}))[0] == 201
    assert (await post(house, "/groups", {"run_id": "r", "admission": False}))[0] == 201
    assert len(house.events(GroupOpened)) == 4
    first = house.events(GroupOpened)[0].group_id
    house.admission.apply(record(group(first, closed=True)))
    assert (await post(house, "/groups", wanted))[0] == 201


async def test_a_full_run_refuses_no_call_of_a_group_that_nobody_declared(house: House) -> None:
    """Room is what runners ask for: a person's session is answered, whatever its run holds; staleness marks it instead."""
    house.admission.apply(record(started("r", 0, 1)))
    assert (await post(house, "/groups", {"run_id": "r"}))[0] == 201
    assert (await post(house, "/groups", {"run_id": "r"}))[0] == 429
    for each in range(20):
        path, asked = f"/s{each}/s{each}", {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
        assert (await post(house, f"{path}/register_trajectory", {"idle_s": 600}, run_id="r"))[0] == 200
        assert (await post(house, f"{path}/v1/chat/completions", asked, run_id="r"))[0] == 200
    assert [event.idle_s for event in house.events(TrajectoryStarted)] == [600.0] * 20
    assert len(house.captured) == 20
    assert (await post(house, "/t/t/register_trajectory", {"idle_s": 0}))[0] == 400


async def test_group_that_could_not_be_written_takes_no_room(house: House) -> None:
    """Without acknowledgement: 503, and its reservation is given back."""
    house.admission.apply(record(started("r", 0, 1)))
    house.log.refusing = True
    status, reply, headers = await post(house, "/groups", {"run_id": "r"})
    assert (status, reply["error"]["code"], headers["retry-after"]) == (503, "not_captured", "1")
    assert (await post(house, "/t/g/complete_trajectory", {}))[0] == 503
    house.log.refusing = False
    assert (await post(house, "/groups", {"run_id": "r"}))[0] == 201


async def test_admission_is_fair_under_concurrency(house: House) -> None:
    """However many ask at once, as many are admitted as there is room."""
    house.admission.apply(record(started("r", 1, 8)))
    statuses = await asyncio.gather(*(post(house, "/groups", {"run_id": "r"}) for _ in range(50)))
    assert sorted(status for status, _, _ in statuses) == [201] * 16 + [429] * 34


async def test_openapi_names_every_control_route(house: House) -> None:
    """Once each, with its body where it has one."""
    async with aiohttp.ClientSession() as session, session.get(house.url + "/openapi.json") as reply:
        paths = (await reply.json())["paths"]
    assert set(paths) == {
        *(
            "/groups",
            "/groups/{group_id}/preferences",
            "/init_trajectory",
            "/orders/{order}",
            "/orders/{order}/returns",
            "/livez",
            "/readyz",
            "/version",
            "/metrics",
        ),
        *(f"/v1/{end}" for end in (*ANYWHERE, *OWN_ENDPOINTS)),
        "/v1/models/{model_id}",
    }
    operations = [operation for path in paths.values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert paths["/v1/submit_steps"]["post"]["requestBody"]["required"]


async def test_health_and_metrics(house: House) -> None:
    """livez, readyz, version and metrics answer; metrics count what happened."""
    async with aiohttp.ClientSession() as session:
        for path, key in (("/livez", "status"), ("/readyz", "ready"), ("/version", "version")):
            async with session.get(house.url + path) as reply:
                assert reply.status == 200
                assert key in await reply.json()
        async with session.get(house.url + "/nowhere") as reply:
            assert reply.status == 404
        until(lambda: 'requests_total{route="control",status="404"} 1.0' in house.metrics.exposition().decode())
        async with session.get(house.url + "/metrics") as reply:
            text = await reply.text()
            assert "claw_capture_lost_total 0.0" in text
            assert "claw_gateway_workers 1.0" in text


async def test_a_fresh_trajectory_is_of_its_run_and_key(house: House) -> None:
    """Asked for again it is the same one; another run that uses the same idempotency key gets its own."""
    first, again, other = [
        (await post(house, "/init_trajectory", {}, run_id=run, idempotency_key="0"))[1]["trajectory_id"]
        for run in ("r", "r", "s")
    ]
    assert first == again != other

"""Trajectories over HTTP: how calls are written against each other, and ids and lifecycles out of the ordinary."""

import asyncio
import itertools
import json

import aiohttp
import pytest

from claw_r1.datapool.delta_decoding import bodies, prompts
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.datapool.fold.state import GroupState
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.schemas.arrays import pack_ids, unpack_ids
from claw_r1.schemas.events import CallCaptured, FactPosition, StepRecord, TrajectoryCompleted, TrajectoryStarted
from claw_r1.schemas.topics import CALLS
from tests.gateway.engine import Json, Received, Reply, ScriptedEngine, spans, stream, whole, written
from tests.gateway.house import House
from tests.gateway.packed import choice, comment, generation

PREFIX = [1, 5, 6, 7]
Turn = dict[str, str]


def tokens(text: str) -> list[int]:
    """A tokenizer as good as any: a character is a token."""
    return [100 + ord(character) for character in text]


def engine_of_letters(received: Received, said: str = "", versions: str = "") -> Reply:
    """Renders messages to ids, so that prompts grow as conversations do; answers with the length of its prompt."""
    asked = received.json
    prompt = [*PREFIX, *(one for message in asked["messages"] for one in tokens(message["content"]))]
    text = said or f"answer {len(prompt)} " * 4
    if asked.get("stream"):
        handed_over = comment(sampled(tokens(text), prompt, versions))
        return Reply(pieces=(*stream(asked, words=tuple(text)).pieces[:-2], handed_over, b"data: [DONE]\n\n"))
    body, _ = written(asked, text=text)
    return whole(body, sampled(tokens(f"{text}0"), prompt))


def sampled(ids: list[int], prompt: list[int], versions: str = "run/3") -> Json:
    """One response after a prompt."""
    return generation(choice(ids, [-0.5] * len(ids), spans=spans(versions, len(ids))), prompt=prompt)


async def post(house: House, path: str, body: Json) -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as session, session.post(house.url + path, json=body) as reply:
        return reply.status, await reply.read()


async def call(house: House, *said: str, path: str = "/t/g/v1", **more: object) -> None:
    messages = [{"role": "user", "content": text} for text in said]
    assert (await post(house, f"{path}/chat/completions", {"model": "tiny", "messages": messages, **more}))[0] == 200


@pytest.mark.parametrize("streamed", [False, True])
async def test_conversations_come_back_from_the_log(house: House, engine: ScriptedEngine, streamed: bool) -> None:
    """Turns, a fork, a sub-agent, a summary, parallel calls: ids and bodies resolve to what engine and client had."""
    engine.default = engine_of_letters
    said = ["You are a helpful agent with many tools and a long instruction."]
    for turn in range(4):
        await call(house, *said, stream=streamed)
        said += [f"reply number {turn} of the agent", f"observation number {turn}"]
    await call(house, *said[:3], "another way", stream=streamed)
    await call(house, "A sub-agent with its own instruction.", stream=streamed)
    await call(house, said[0], "summary of all that", stream=streamed)
    await asyncio.gather(*(call(house, *said, f"in parallel {n}", stream=streamed) for n in range(4)))
    events = {event.call_id: event for event in house.captured}
    asked = [request.body for request in engine.requests]
    assert sorted(bodies(events).values()) == sorted(json.dumps(json.loads(body)).encode() for body in asked)
    for call_id, prompt in prompts(events).items():
        messages = json.loads(bodies(events)[call_id])["messages"]
        assert unpack_ids(prompt) == [*PREFIX, *(one for message in messages for one in tokens(message["content"]))]
    assert len(prompts(events)) == len(events) == 11
    assert sum(event.prompt.base_call_id is not None for event in events.values()) >= 8


async def test_a_gateway_that_knows_nothing_writes_everything(engine: ScriptedEngine) -> None:
    """After a restart, or in another process, the next call is written in full: larger, as right."""
    engine.default = engine_of_letters
    with House() as first:
        first.worker(engine.url)
        await call(first, "a long beginning of it all, longer than what is worth a delta")
        with House(first.log) as second:
            second.worker(engine.url)
            await call(second, "a long beginning of it all, longer than what is worth a delta", "and on")
            assert [event.prompt.base_call_id for event in first.captured] == [None, None]
            assert len(prompts({event.call_id: event for event in first.captured})) == 2


KEY = "x-claw-idempotency-key"
COUNT = "x-claw-retry-count"
SEEN_TWICE = [
    pytest.param(((0, 0), (1, 1), (0, 2)), id="an SDK retries at A, B and A again"),
    pytest.param(((0, 0), (1, 0), (0, 0)), id="its user repeats, and the SDK counts from 0 each time"),
    pytest.param(((0, None), (1, None), (0, None)), id="nobody counts"),
    pytest.param(((0, 0), (1, 0)), id="a user repeats at another gateway, or at one that was started anew"),
    pytest.param(((0, 0), (1, 0), (1, 0)), id="and once more"),
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("tries", SEEN_TWICE)
async def test_what_the_agent_goes_on_with_counts_whoever_answered(
    engine: ScriptedEngine, tries: tuple[tuple[int, int | None], ...], streamed: bool
) -> None:
    """An engine that never says the same thing twice, two gateways, one key: the pool counts the reply that the agent got
    last, and whatever goes on from it, at either gateway, can be trained."""
    replies = itertools.count()
    engine.default = lambda received: engine_of_letters(received, f"answer {next(replies)} of many " * 4, "run/3")
    with House() as first, House(first.log) as second:
        houses = first, second
        for house in houses:
            house.worker(engine.url)
        said = ["a long beginning of it all, longer than what is worth a delta"]
        got = ""
        for at, count in tries:
            got = await asked(houses[at], said, "k0", count, streamed)
        said.append(got)
        for turn, at in enumerate((0, 1, 1, 0), 1):
            said += [await asked(houses[at], said, f"k{turn}", 0, streamed), f"observation {turn}"]
        steps = folded(first.log)
    counted = [unpack_ids(event.response_ids) for event, _ in steps]
    assert counted == [tokens(text) for text in [got, *said[2::2]]]
    assert [step.reasons for _, step in steps] == [()] * 5


async def asked(house: House, said: list[str], key: str, count: int | None, streamed: bool) -> str:
    """What the engine says to an agent that asks under a key."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": text} for text in said], "stream": streamed}
    headers = {KEY: key} | ({} if count is None else {COUNT: str(count)})
    async with (
        aiohttp.ClientSession() as session,
        session.post(house.url + "/t/g/v1/chat/completions", json=body, headers=headers) as reply,
    ):
        assert reply.status == 200
        text = await reply.text()
    if not streamed:
        return str(json.loads(text)["choices"][0]["message"]["content"])
    chunks = [json.loads(event[6:]) for event in text.split("\n\n") if event.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"])


def folded(log: MemoryLog, group: str = "g") -> list[tuple[CallCaptured, StepRecord]]:
    """The calls of a group as the pool counts them, in order, each with the event that counts."""
    state: GroupState | None = None
    events: dict[int, CallCaptured] = {}
    for record in log.reader([CALLS]).read_to_end():
        event = record.event()
        if getattr(event, "group_id", group) != group:
            continue
        state = fold(state, event, FactPosition(topic=record.topic, partition=record.partition, offset=record.offset))
        if isinstance(event, CallCaptured):
            events[record.offset] = event
    assert state is not None
    steps = [row for row in project(state).values() if isinstance(row, StepRecord)]
    counted = [(events[step.position.offset], step) for step in steps if step.position is not None]
    return sorted(counted, key=lambda pair: pair[0].timings.received_us)


async def test_unacknowledged_calls_are_no_bases(house: House, engine: ScriptedEngine) -> None:
    """What the log does not have is not built on."""
    engine.default = engine_of_letters
    text = "a long beginning of it all, longer than what is worth a delta"
    house.log.refusing = True
    status, _ = await post(house, "/t/g/v1/chat/completions", {"messages": [{"role": "user", "content": text}]})
    assert status == 503
    house.log.refusing = False
    await call(house, text, "and on")
    assert [event.prompt.base_call_id for event in house.captured] == [None]


@pytest.mark.parametrize("trajectory", ["a%2Fb", "%F0%9F%98%80", "..", "%25", "x" * 512, "v1", "%22%27%3B--", "a%20b"])
async def test_odd_ids_are_ids(house: House, engine: ScriptedEngine, trajectory: str) -> None:
    """Whatever characters an id has, its calls belong together, and to nobody else."""
    engine.default = engine_of_letters
    text = "a long beginning of it all, longer than what is worth a delta"
    await call(house, text, path=f"/{trajectory}/g/v1")
    await call(house, text, "and on", path=f"/{trajectory}/g/v1")
    await call(house, text, "and on", path="/other/g/v1")
    first, second, other = house.captured
    assert first.trajectory_id == second.trajectory_id != other.trajectory_id
    assert (second.prompt.base_call_id, other.prompt.base_call_id) == (first.call_id, None)


async def test_lifecycle_out_of_order(house: House) -> None:
    """Completed before anything, called after its completion, registered last: all of it is stored, none refused."""
    assert (await post(house, "/t/g/v1/complete_trajectory", {"reward": 1.0}))[0] == 200
    await call(house, "late")
    assert (await post(house, "/t/g/v1/register_trajectory", {}))[0] == 200
    assert (await post(house, "/t/g/v1/complete_trajectory", {"calls": 1}))[0] == 200
    assert (await post(house, "/nobody/g/v1/rewards", {"value": 1.0, "call_id": "unknown"}))[0] == 200
    assert len(house.captured) == 1
    assert len(house.events(TrajectoryCompleted)) == 2
    assert len(house.events(TrajectoryStarted)) == 1


async def test_packed_ids_are_what_the_engine_said(house: House, engine: ScriptedEngine) -> None:
    """The largest id and zero survive."""
    body, _ = written({})
    engine.then(whole(body, generation(choice([0, 2**31 - 1], [-0.5, -0.5]), prompt=[2**31 - 1, 0])))
    await call(house, "x")
    (event,) = house.captured
    assert (event.prompt.suffix, event.response_ids) == (pack_ids([2**31 - 1, 0]), pack_ids([0, 2**31 - 1]))

"""Agents that ask again under their key until they have a reply, across kills and processes: one call for one key.

The engine never says the same thing twice, so which of several attempts an agent went on with can be told.
"""

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson
import pytest

from claw_r1.claw.local.ports import free_ports
from claw_r1.datapool.fold.fold import fold
from claw_r1.datapool.fold.project import project
from claw_r1.datapool.fold.state import GroupState
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.envelopes import decision_id
from claw_r1.schemas.events import CallCaptured, FactPosition, StepRecord, TrajectoryRecord
from tests.gateway.engine import Action, Json, Received, Reply, ScriptedEngine, completion, stream
from tests.gateway.processes import Found, GatewayProcess, poll
from tests.patience import PATIENCE_S
from tests.soak import SOAK

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
ASK: Json = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
CALLS_PER_TRAJECTORY = 4
TRIES_MAX = int(PATIENCE_S / 0.05)
"""Agents begin before their gateway does: what they wait for is its start."""
KILLS = SOAK or 1


@dataclass(frozen=True)
class Got:
    """What an agent went on with for one key."""

    call_id: str
    said: str
    tries: int


@dataclass
class Persistent:
    """Agents that give up no call. `got`: (trajectory, key) → the reply they took."""

    url: str
    name: str
    counting: bool = True
    """Whether they tell how often they have asked."""
    got: dict[tuple[str, str], Got] = field(default_factory=dict)
    stopping: bool = False
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def repeated(self) -> int:
        """Keys that were asked for more than once."""
        return sum(one.tries > 1 for one in self.got.values())

    async def run(self, concurrency: int) -> None:
        await asyncio.gather(*(self._agent() for _ in range(concurrency)))

    async def _agent(self) -> None:
        while not self.stopping:
            trajectory = f"{self.name}{next(self.numbers)}"
            for number in range(CALLS_PER_TRAJECTORY):
                await self.call(trajectory, f"k{number}", streamed=number % 2 == 1)
            await self.complete(trajectory, CALLS_PER_TRAJECTORY)

    async def call(self, trajectory: str, key: str, *, streamed: bool, tries_from: int = 0) -> Got:
        """One call, however often it has to be sent; each time on a connection of its own, as after a crash."""
        for tries in range(tries_from, TRIES_MAX):
            headers = {"x-claw-idempotency-key": key} | ({"x-claw-retry-count": str(tries)} if self.counting else {})
            try:
                call_id, body = await self._post(trajectory, "chat/completions", {**ASK, "stream": streamed}, headers)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            self.got[trajectory, key] = Got(call_id, text_of(body, streamed=streamed), tries + 1)
            return self.got[trajectory, key]
        raise AssertionError(f"no reply for {trajectory} {key}")

    async def complete(self, trajectory: str, calls: int) -> None:
        """Tell that this was all; again until it is heard."""
        for _ in range(TRIES_MAX):
            try:
                await self._post(trajectory, "complete_trajectory", {"calls": calls}, {"x-claw-idempotency-key": "end"})
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            return
        raise AssertionError(f"no completion of {trajectory}")

    async def _post(self, trajectory: str, route: str, body: Json, headers: dict[str, str]) -> tuple[str, bytes]:
        url = f"{self.url}/{trajectory}/g/v1/{route}"
        async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=headers) as reply:
            reply.raise_for_status()
            said = await reply.read()
            if body.get("stream") and not said.endswith(b"data: [DONE]\n\n"):
                raise aiohttp.ClientPayloadError("a stream without its end is no reply")
            return reply.headers.get("x-claw-call-id", ""), said


def text_of(body: bytes, *, streamed: bool) -> str:
    """What the engine said to the agent."""
    if not streamed:
        content: str = orjson.loads(body)["choices"][0]["message"]["content"]
        return content
    events = [orjson.loads(event[6:]) for event in body.split(b"\n\n") if event.startswith(b"data: {")]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])


def never_the_same(delay_s: float) -> Action:
    """An engine that says a new number each time."""
    numbers = itertools.count()

    def answer(received: Received) -> Reply:
        number, asked = next(numbers), received.json
        if asked.get("stream"):
            return stream(asked, words=(str(number), "!"), pace_s=delay_s / 4)
        reply = completion(asked, text=f"{number}!")
        return Reply(reply.body, headers=reply.headers, delay_s=delay_s)

    return answer


def captured(log: LogSettings) -> dict[str, list[CallCaptured]]:
    """The events of each call, in the order of the log."""
    calls: dict[str, list[CallCaptured]] = defaultdict(list)
    for record in Found.of(log).records:
        event = record.event()
        if isinstance(event, CallCaptured):
            calls[event.call_id].append(event)
    return calls


def folded(log: LogSettings) -> tuple[dict[str, StepRecord], dict[str, TrajectoryRecord]]:
    """Steps by call id and trajectories by id, as the pool has them."""
    state: GroupState | None = None
    for record in Found.of(log).records:
        at = FactPosition(topic=record.topic, partition=record.partition, offset=record.offset)
        state = fold(state, record.event(), at)
    assert state is not None
    rows = list(project(state).values())
    steps = {row.call_id: row for row in rows if isinstance(row, StepRecord)}
    return steps, {row.trajectory_id: row for row in rows if isinstance(row, TrajectoryRecord)}


def check(log: LogSettings, agents: Persistent) -> dict[str, list[CallCaptured]]:
    """One call for each key: captured, counted once, with the reply that its agent took. Returns all events."""
    events = captured(log)
    steps, trajectories = folded(log)
    for (trajectory, key), got in agents.got.items():
        assert got.call_id == decision_id("call", "g", trajectory, key)
        assert got.call_id in events, "a reply that no log knows"
        attempts = [event.attempt for event in events[got.call_id]]
        assert max(Counter(attempts).values()) == 1, f"one attempt twice: {attempts}"
        step = steps[got.call_id]
        assert (step.attempt, step.attempts) == (max(attempts), tuple(sorted(attempts)))
        (counted,) = (event for event in events[got.call_id] if event.attempt == step.attempt)
        assert said_by(counted) == got.said, "the agent went on with something else than what is trained on"
    assert len({got.call_id for got in agents.got.values()}) == len(agents.got), "two keys are two calls"
    for trajectory in {trajectory for trajectory, _ in agents.got}:
        counted_calls = trajectories[trajectory].calls
        assert sorted(counted_calls) == sorted(
            got.call_id for (name, _), got in agents.got.items() if name == trajectory
        )
        assert trajectories[trajectory].ready, trajectories[trajectory].reasons
    return events


def said_by(event: CallCaptured) -> str:
    """The text of a captured reply."""
    content: str = orjson.loads(event.response_body)["choices"][0]["message"]["content"]
    return content


async def test_kill_under_retrying_agents(log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path) -> None:
    """kill -9 again and again under agents that ask again: each key has its reply, and is one call with that reply."""
    engine.default = never_the_same(0.03)
    (port,) = free_ports(1)
    agents = Persistent(f"http://127.0.0.1:{port}", "a")
    working = asyncio.ensure_future(agents.run(12))
    for _ in range(KILLS):
        running = await asyncio.to_thread(gateway, log_settings, tmp_path, port, engine.url)
        seen = len(agents.got)
        await poll(lambda seen=seen: len(agents.got) >= seen + 60)  # type: ignore[misc]  # a lambda with a default
        running.kill()
    running = await asyncio.to_thread(gateway, log_settings, tmp_path, port, engine.url)
    agents.stopping = True
    await asyncio.wait_for(working, 60)
    assert running.stop() == 0
    assert agents.repeated >= 2 * KILLS, "each kill met calls under way"
    events = check(log_settings, agents)
    twice = sum(len(attempts) > 1 for attempts in events.values())
    print(f"{len(agents.got)} keys, {agents.repeated} asked again, {twice} captured more than once")


async def test_one_key_on_two_processes_of_a_port(
    log_settings: LogSettings, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """A retry that lands on another process is generated anew, under the same call id as the next attempt; on the same
    process it is repeated. The pool counts one call, with the reply that was given last, be the tries counted or not."""
    engine.default = never_the_same(0.0)
    flags = ("--upstream", engine.url)
    running = await asyncio.to_thread(lambda: GatewayProcess(log_settings, tmp_path, *flags, workers=2))
    try:
        agents, careless = Persistent(running.url, "w"), Persistent(running.url, "u", counting=False)
        keys = [f"k{number}" for number in range(24)]
        first = {key: await agents.call("w", key, streamed=False) for key in keys}
        second = {key: await agents.call("w", key, streamed=False, tries_from=1) for key in keys}
        await agents.complete("w", len(keys))
        for key in keys * 2:
            await careless.call("u", key, streamed=False)
        await careless.complete("u", len(keys))
    finally:
        assert running.stop() == 0
    events = check(log_settings, agents)
    moved = 0
    for key in keys:
        one, other = events[first[key].call_id]
        assert (one.attempt, other.attempt) == (0, 1)
        same = one.envelope.producer == other.envelope.producer
        assert (second[key].said == first[key].said) is same
        moved += not same
    assert 0 < moved < len(keys), "of so many connections, some go to the other process, and some to the same one"
    check_careless(log_settings, events, careless)


def check_careless(log: LogSettings, events: dict[str, list[CallCaptured]], agents: Persistent) -> None:
    """Without a count, two processes both make an attempt 0: stored twice, trained once, as its agent got it last."""
    steps, trajectories = folded(log)
    assert any([event.attempt for event in events[one.call_id]] == [0, 0] for one in agents.got.values())
    records = {record.offset: record.event() for record in Found.of(log).records}
    for got in agents.got.values():
        at = steps[got.call_id].position
        assert at is not None
        counted = records[at.offset]
        assert isinstance(counted, CallCaptured)
        assert (counted.call_id, said_by(counted)) == (got.call_id, got.said)
    assert sorted(trajectories["u"].calls) == sorted(got.call_id for got in agents.got.values())
    assert trajectories["u"].ready, trajectories["u"].reasons


def gateway(log: LogSettings, folder: Path, port: int, upstream: str) -> GatewayProcess:
    return GatewayProcess(log, folder, "--upstream", upstream, port=port)

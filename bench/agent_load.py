"""Agents as a load, in a process of their own; prints one JSON object with its own CPU time.

`python -m bench.agent_load '{"how": "runner", "url": "http://127.0.0.1:8000", "episodes": 200}'`. `runner`: flows played by
claw_r1.agentflow.runner, with groups and completions. `sdk`: OpenAI's SDK in a bare loop, model calls only. `verbs`: episodes of verbs by
bare HTTP, at a gateway or (`"direct": true`) at an engine.
"""

import asyncio
import json
import sys
import time
import uuid
from dataclasses import dataclass
from typing import Any

import aiohttp

from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.flow import AgentFlow
from claw_r1.agentflow.runner import Runner
from claw_r1.agentflow.settings import RunPlan
from claw_r1.claw.demo.verbs.environment import Task, judge
from claw_r1.claw.demo.verbs.flow import SAMPLING

CALLS_PER_EPISODE = 4
GROUP_SIZE = 8
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "x" * 1900}]


@dataclass(frozen=True)
class Load:
    """What to do."""

    how: str
    url: str
    episodes: int
    at_once: int = 16
    direct: bool = False
    key: str = "unused"


class FourCalls(AgentFlow):
    """Calls and does nothing else."""

    async def run(self, episode: Episode) -> None:
        for _ in range(CALLS_PER_EPISODE):
            await episode.chat(MESSAGES, temperature=1.0)
        episode.outcome = 1.0


async def by_runner(load: Load) -> int:
    """Episodes in groups; returns the calls."""
    plan = RunPlan(
        group_size=GROUP_SIZE, groups_max=load.episodes // GROUP_SIZE, concurrency=load.at_once, channel="bench"
    )
    async with GatewayClient(load.url, model="bench", channel="bench", agent="bench") as client:
        return (await Runner(FourCalls(), client, plan).run()).calls_replied


async def by_sdk(load: Load) -> int:
    """The same calls by OpenAI's SDK; each episode has a client of its own base URL, on shared connections."""
    import openai

    root = openai.AsyncOpenAI(base_url=load.url, api_key=load.key)

    async def episode() -> None:
        client = root.with_options(base_url=f"{load.url}/{uuid.uuid4().hex}/bench/v1")
        for _ in range(CALLS_PER_EPISODE):
            await client.chat.completions.create(model="bench", messages=MESSAGES, temperature=1.0)  # type: ignore[arg-type]  # a literal is one of the client's messages

    await _at_once(load, episode)
    return load.episodes * CALLS_PER_EPISODE


async def by_http(load: Load) -> int:
    """Verbs, by a session of aiohttp."""
    calls = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def episode() -> None:
            nonlocal calls
            path = "/v1" if load.direct else f"/{uuid.uuid4().hex}/bench/v1"
            task = Task.from_seed(uuid.uuid4().int % (1 << 62))
            messages: list[dict[str, str]] = []
            for index, observation in enumerate(task.observations):
                messages.append({"role": "user", "content": observation})
                body = {"model": "bench", "messages": messages, **SAMPLING, "max_tokens": 32, "ignore_eos": True}
                async with session.post(f"{load.url}{path}/chat/completions", json=body) as reply:
                    reply.raise_for_status()
                    text = (await reply.json())["choices"][0]["message"]["content"] or ""
                calls += 1
                messages.append({"role": "assistant", "content": text})
                judge(
                    task, index, text
                )  # the rules cost both sides the same; the episode goes on, so that all are as long

        await _at_once(load, episode)
    return calls


async def _at_once(load: Load, episode: Any) -> None:  # any async function without arguments
    left = iter(range(load.episodes))

    async def play() -> None:
        for _ in left:
            await episode()

    await asyncio.gather(*(play() for _ in range(load.at_once)))


async def measured(load: Load) -> dict[str, float]:
    """Wall and CPU seconds after a warm-up of one episode each, and calls."""
    play = {"runner": by_runner, "sdk": by_sdk, "verbs": by_http}[load.how]
    await play(Load(load.how, load.url, GROUP_SIZE, GROUP_SIZE, load.direct, load.key))
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    calls = await play(load)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return {"calls": calls, "cpu_ms": 1000 * cpu_s / calls, "episodes_per_s": load.episodes / wall_s}


if __name__ == "__main__":
    json.dump(asyncio.run(measured(Load(**json.loads(sys.argv[1])))), sys.stdout)

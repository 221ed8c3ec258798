"""The part of `bench.agents`, and the agents that it loads a gateway with, in a process of their own that prints its CPU per call.

`python -m bench.agents.load runner http://127.0.0.1:8000 200`: flows played by claw_r1.agentflow.runner, with groups and
completions. `sdk`: OpenAI's SDK in a bare loop, model calls only.
"""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.medians import medians
from bench.processes import gateway, listening, new_log
from bench.report import Figures
from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.flow import AgentFlow
from claw_r1.agentflow.runner import Runner
from claw_r1.agentflow.settings import RunPlan

CALLS_PER_EPISODE = 4
GROUP_SIZE = 8
AT_ONCE = 16
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "x" * 1900}]


def runner(repeats: int, episodes: int) -> Figures:
    """CPU-ms per call of both sides, at a scripted engine."""
    episodes = max(1, episodes // GROUP_SIZE) * GROUP_SIZE
    with (
        new_log() as log,
        TemporaryDirectory() as name,
        listening("bench.scripted_upstream", Path(name)) as (engine, _),
        gateway(log, engine, Path(name)) as (port, _),
    ):
        url = f"http://127.0.0.1:{port}"
        rounds = [{how: cpu_ms(how, url, episodes) for how in ("runner", "sdk")} for _ in range(repeats)]
    ratios = [{**each, "ratio": each["runner"] / each["sdk"]} for each in rounds]
    middle = medians(ratios)
    return {
        "runner_cpu_ratio": middle["ratio"],
        "runner_cpu_ms": middle["runner"],
        "sdk_cpu_ms": middle["sdk"],
        "runner_cpu_ratios": [each["ratio"] for each in ratios],
    }


def cpu_ms(how: str, url: str, episodes: int) -> float:
    """Returns what one load said."""
    command = [sys.executable, "-m", "bench.agents.load", how, url, str(episodes)]
    return float(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))


class FourCalls(AgentFlow):
    """Calls and does nothing else."""

    async def run(self, episode: Episode) -> None:
        for _ in range(CALLS_PER_EPISODE):
            await episode.chat(MESSAGES, temperature=1.0)
        episode.outcome = 1.0


async def by_runner(url: str, episodes: int) -> None:
    """Episodes in groups."""
    plan = RunPlan(group_size=GROUP_SIZE, groups_max=episodes // GROUP_SIZE, concurrency=AT_ONCE, channel="bench")
    async with GatewayClient(url, model="bench", channel="bench", agent="bench") as client:
        report = await Runner(FourCalls(), client, plan).run()
    assert report.calls_replied == episodes * CALLS_PER_EPISODE


async def by_sdk(url: str, episodes: int) -> None:
    """The same calls by OpenAI's SDK; each episode has a client of its own base URL, on shared connections."""
    import openai

    root = openai.AsyncOpenAI(base_url=url, api_key="unused")
    left = iter(range(episodes))

    async def play() -> None:
        for _ in left:
            client = root.with_options(base_url=f"{url}/{uuid.uuid4().hex}/bench/v1")
            for _ in range(CALLS_PER_EPISODE):
                await client.chat.completions.create(model="bench", messages=MESSAGES, temperature=1.0)  # type: ignore[arg-type]  # a literal is one of the client's messages

    await asyncio.gather(*(play() for _ in range(AT_ONCE)))


async def main(how: str, url: str, episodes: int) -> float:
    """CPU milliseconds per call, after a warm-up of a group."""
    play = {"runner": by_runner, "sdk": by_sdk}[how]
    await play(url, GROUP_SIZE)
    began = time.process_time()
    await play(url, episodes)
    return 1000 * (time.process_time() - began) / (episodes * CALLS_PER_EPISODE)


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))

"""The example programs as they stand in docs/black-box-agents.md: any model is played by its address alone."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from claw_r1.agentflow.black_box import BlackBox
from claw_r1.agentflow.bodies import TrajectoryId
from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.flow import play
from claw_r1.agentflow.settings import FlowSettings
from claw_r1.claw.demo.verbs.environment import Task, right_call
from tests.agentflow.fake_gateway import FakeGateway

PROGRAMS = Path(__file__).parents[2] / "examples" / "black_box"
TASK = Task(("find c", "c>f", "f=7"))
AGENT = f"{sys.executable} {PROGRAMS / 'verbs_agent.py'}"

pytestmark = pytest.mark.process


def right(messages: Sequence[Mapping[str, Any]]) -> str:
    return right_call(messages[-1]["content"])


@pytest.mark.parametrize(
    ("command", "calls", "reward"),
    [(AGENT, 3, 1.0), (f"{AGENT} --sdk", 3, 1.0), (f"sh {PROGRAMS / 'first_verb.sh'}", 1, 0.25)],
    ids=["library", "sdk", "shell"],
)
async def test_a_program_plays_and_is_judged(command: str, calls: int, reward: float) -> None:
    """A perfect model behind it earns what the rules give for as many answers as the program asks for."""
    if command.startswith("sh ") and not (shutil.which("jq") and shutil.which("curl")):
        pytest.skip("needs jq and curl")
    async with FakeGateway(right) as fake, GatewayClient(fake.url) as client:
        settings = FlowSettings(gateway=fake.url, command=command, reward=f"{PROGRAMS / 'rewards.py'}:score")
        episode = Episode(client, TrajectoryId("t", "g/1"), task={"observations": list(TASK.observations)}, seed=1)
        result = await play(BlackBox(settings, None), episode, client.settings)
    assert (result.status, result.calls, result.reward) == ("completed", calls, reward)

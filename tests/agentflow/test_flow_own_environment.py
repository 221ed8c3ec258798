import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from claw_r1.agentflow.bodies import TrajectoryId
from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.flow import load_flow
from claw_r1.agentflow.runner import Runner
from claw_r1.agentflow.settings import RunPlan
from tests.agentflow.fake_gateway import FakeGateway
from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House
from tests.gateway.integration.test_sessions import pooled

PAGE = Path(__file__).parents[2] / "docs" / "own-environment.md"


async def test_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch) -> None:
    """The flow of docs/own-environment.md, saved as the page says, is loaded by name and earns what one that knows one desk earns."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "desk.py").write_text(code[1])
    monkeypatch.chdir(tmp_path)  # one's own flow is found where one works
    async with (
        FakeGateway(lambda messages: f"money {messages[-1]['content'].split()[1]}") as fake,
        GatewayClient(fake.url) as client,
    ):
        plan = RunPlan(group_size=2, concurrency=2, seed=1, groups_max=20)
        summary = await Runner(load_flow("desk:Desk"), client, plan).run()
    tickets = [ticket for body in fake.bodies("groups") for ticket in body["task"]["tickets"]]
    assert {ticket.split()[0] for ticket in tickets} == {"bill", "crash", "offer"}
    assert summary.episodes_failed == 0
    assert [body["reward"] for body in fake.bodies("complete_trajectory")] == [0.0] * 40
    bills = sum(ticket.startswith("bill") for ticket in tickets)
    assert sum(body["value"] for body in fake.bodies("rewards")) == 0.5 * 2 * bills


def sums(folder: Path) -> str:
    """The name of the first flow of docs/agent-flows.md, in a file of its own."""
    code = re.search(r"```python\n(.*?)```", PAGE.with_name("agent-flows.md").read_text(), re.DOTALL)
    assert code is not None
    (folder / "sums.py").write_text(code[1])
    return f"{folder}/sums.py:Sums"


async def test_the_tools_of_the_page_on_flows_run_as_they_stand(tmp_path: Path) -> None:
    """The first flow of docs/agent-flows.md: a call of the tool, its result, two critics, an outcome."""
    flow = load_flow(sums(tmp_path))
    call = {"id": "c", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}

    def model(messages: Sequence[Mapping[str, Any]]) -> str | dict[str, Any]:
        last = messages[-1]
        if last["role"] == "tool":
            return str(last["content"])
        return "no" if "hard" in last["content"] else {"content": None, "tool_calls": [call]}

    async with FakeGateway(model) as fake, GatewayClient(fake.url) as client:
        plan = RunPlan(group_size=1, concurrency=1, seed=1, groups_max=2)
        summary = await Runner(flow, client, plan).run()
    assert (summary.episodes_failed, summary.calls_replied) == (0, 8)
    tasks = [body["task"] for body in fake.bodies("groups")]
    rewards = [body["reward"] for body in fake.bodies("complete_trajectory")]
    assert rewards == [float(task["a"] + task["b"] == 3) for task in tasks]


async def test_the_critics_of_the_page_are_trained_as_it_says(tmp_path: Path) -> None:
    """They have no tools, and the agent beside them has: none of their calls is a side call in the pool, which a batch leaves out."""
    flow = load_flow(sums(tmp_path))
    with ScriptedEngine() as engine, House() as house:
        house.worker(engine.url)
        async with GatewayClient(house.url, model="tiny") as client:
            await flow.run(Episode(client, TrajectoryId("t", "g"), task=flow.task(1), seed=1))
        assert sorted(call.has_tools for call in house.captured) == [False, False, True]
        assert [step.tags for step in pooled(house.captured).values()] == [(), (), ()]

import re
from pathlib import Path

from agentflow.client import GatewayClient
from agentflow.flow import load_flow
from agentflow.runner import Runner
from agentflow.settings import RunPlan
from tests.agentflow.fake_gateway import FakeGateway

PAGE = Path(__file__).parents[2] / "docs" / "own-environment.md"


async def test_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch) -> None:
    """The flow of docs/own-environment.md, saved as the page says, is loaded by name and earns what a guesser earns."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / "guess.py").write_text(code[1])
    monkeypatch.chdir(tmp_path)  # one's own flow is found where one works
    guesses = ["4", "none", "6"]
    async with FakeGateway(lambda messages: guesses[len(messages) // 2]) as fake, GatewayClient(fake.url) as client:
        summary = await Runner(
            load_flow("guess:Guess"), client, RunPlan(group_size=2, concurrency=2, seed=1, groups_max=20)
        ).run()
    numbers = {body["group_id"]: body["task"]["number"] for body in fake.bodies("groups")}
    assert set(numbers.values()) == set(range(1, 8))
    assert summary.episodes_failed == 0
    for completion in fake.bodies("complete_trajectory"):
        number = numbers[completion["ids"][1]]
        assert completion["reward"] == (number in {4, 6})
        assert (completion["calls"], completion.get("rewards", 0)) == {4: (1, 0), 6: (3, 2)}.get(number, (3, 3))

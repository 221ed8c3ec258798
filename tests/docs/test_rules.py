"""The rule of docs/rewards/rules.md."""

import re
from pathlib import Path

import pytest

from claw_r1.consumers.rewards.judged import Judged, JudgedCall, JudgedMessage
from claw_r1.consumers.rewards.verdict import Verdict

PAGE = Path(__file__).parents[2] / "docs" / "rewards" / "rules.md"


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ({"role": "assistant", "content": " 4\n"}, 1.0),
        ({"role": "assistant", "content": "5"}, 0.0),
        ({"role": "assistant", "content": None}, 0.0),
        ({"role": "assistant", "tool_calls": []}, 0.0),
        (None, 0.0),
    ],
)
def test_the_rule_of_the_page_judges_any_reply(reply: JudgedMessage | None, value: float) -> None:
    """Also one that only calls tools, and so has no text."""
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    names: dict[str, object] = {}
    exec(block[1], names)
    judged = Judged(
        scope="trajectory", group_id="g", calls=(JudgedCall(call_id="c", reply=reply),), task={"answer": "4"}
    )
    verdict = names["exact"](judged)  # type: ignore[operator]  # what the page defines
    assert isinstance(verdict, Verdict)
    assert verdict.value == value

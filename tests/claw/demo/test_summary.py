"""The last lines of a demo."""

import shlex
import shutil

import orjson
import pytest

from claw_r1.claw.demo.summary import _conversation, further


def test_the_three_commands_can_be_typed_as_they_stand() -> None:
    """Each begins with a program that is there, and names the prefix where it is not the usual one."""
    for line in further("t1", "claw"):
        assert shutil.which(shlex.split(line)[0])
    assert all(line.endswith("--prefix other") for line in further("t1", "other"))
    assert "inspect t1" in further("t1", "claw")[2]


@pytest.mark.parametrize(
    "result",
    [
        {"role": "tool", "tool_call_id": "t", "content": "a=7"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a=7"}]},
        {"type": "function_call_output", "call_id": "t", "output": "a=7"},
    ],
)
def test_an_episode_is_shown_alike_in_every_protocol(result: dict[str, object]) -> None:
    """As chat, as messages, as responses."""
    answers = (
        {"role": "assistant", "content": "say 7"},
        {"role": "assistant", "content": [{"type": "text", "text": "say 7"}]},
    )
    for answer in answers:
        shown = _conversation(
            {"transcript": orjson.loads(orjson.dumps([{"role": "user", "content": "find a"}, result, answer]))}
        )
        assert [line.split(maxsplit=1) for line in shown.splitlines()] == [
            ["user", "find a"],
            ["tool", "a=7"],
            ["assistant", "say 7"],
        ]

"""What real clients sent, recorded by `make clients` with long texts cut: read as their calls would be."""

from pathlib import Path

import orjson
import pytest

from claw_r1.claw.clients import RECIPES
from claw_r1.datapool.view.conversations import BRANCH, CallBodies, conversation, function_parameters
from tests.clients.engine import SHELL, TURNS

TRAFFIC = sorted(Path(__file__).parent.glob("traffic/*.json"))


def bodies_of(path: Path) -> list[bytes]:
    """The main calls of a session: those with tools."""
    return [orjson.dumps(call["body"]) for call in orjson.loads(path.read_bytes()) if call["body"].get("tools")]


@pytest.mark.parametrize("path", TRAFFIC, ids=lambda path: path.stem)
def test_a_recorded_session_is_one_conversation(path: Path) -> None:
    """Its turns go on from each other, each result stands behind its call, and the shell is among the functions."""
    calls = [CallBodies(RECIPES[path.stem].protocol, body, b"") for body in bodies_of(path)]
    turns = conversation(calls)
    assert BRANCH not in [turn["content"] for turn in turns]
    assert [turn["role"] for turn in turns][-2 * TURNS :] == ["assistant", "tool"] * TURNS
    assert [f"turn-{n}" in turn["content"] for n, turn in enumerate(turns[-2 * TURNS + 1 :: 2])] == [True] * TURNS
    assert any(SHELL.fullmatch(name) for name in function_parameters(calls[-1]) or ())

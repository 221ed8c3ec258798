"""Each client that agents run in, by what it sends: transcribed calls, and whose they are."""

import json
from pathlib import Path

import pytest

from gateway.api_keys import ApiKey
from gateway.callers.callers import Caller, Callers
from gateway.callers.hints import hints
from gateway.callers.signs import signs
from gateway.identity import Identity, resolve

CLIENTS = Path(__file__).parent / "clients"
KEY = ApiKey("agent", b"digest", scope="team")


@pytest.mark.parametrize("client", sorted(path.stem for path in CLIENTS.iterdir()))
def test_whose_calls_a_client_makes(client: str) -> None:
    """Under a key with a scope, and nothing in the path. Kinds are asked for when all calls are under way."""
    callers, made = Callers(lambda *_: False), list[tuple[Caller, dict[str, str | None]]]()
    for call in json.loads((CLIENTS / f"{client}.json").read_text())["calls"]:
        headers = [(name.encode(), value.encode()) for name, value in call["headers"].items()]
        caller = callers.caller(None, KEY, signs(headers), hints(call["body"]), json.dumps(call["body"]))
        made.append((caller, call["expected"]))
    before = [Identity("", "")]
    for caller, expected in made:
        if expected["trajectory"] == "new":
            assert caller.identity not in before
            assert caller.identity.trajectory_id.startswith("team/")
        else:
            trajectory_id = before[-1].trajectory_id if expected["trajectory"] == "previous" else expected["trajectory"]
            assert caller.identity == Identity(trajectory_id, trajectory_id)
        before.append(caller.identity)
        assert (caller.source, caller.kind, caller.parent) == (
            expected["source"],
            expected["kind"],
            expected["parent"],
        )


@pytest.mark.parametrize("client", ["claude-code", "codex", "openclaw", "opencode"])
def test_a_path_with_both_ids_holds_whatever_a_client_says(client: str) -> None:
    """Sessions and sub-agents of a client on a path of ours stay on it, and are stored."""
    callers, route = Callers(lambda *_: False), resolve(b"/t/g/v1/chat/completions")
    for call in json.loads((CLIENTS / f"{client}.json").read_text())["calls"]:
        headers = [(name.encode(), value.encode()) for name, value in call["headers"].items()]
        caller = callers.caller(route, KEY, signs(headers), hints(call["body"]), "")
        assert (caller.identity, caller.source, caller.parent) == (Identity("g", "t"), "path", None)
        assert caller.kind == call["expected"]["kind"]

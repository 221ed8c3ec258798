"""Each client that agents run in, by what it sends: transcribed calls and recorded ones, and whose they are."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from claw_r1.datapool.fold.step import kind_of
from claw_r1.gateway.callers.caller_fields import hints
from claw_r1.gateway.callers.caller_headers import CallerSigns, signs
from claw_r1.gateway.callers.callers import Caller, Callers, RetryKey
from claw_r1.gateway.paths import Identity, resolve
from claw_r1.schemas.api_keys import ApiKey

CLIENTS = Path(__file__).parent / "clients"
TRAFFIC = Path(__file__).parents[2] / "clients" / "traffic"
KEY = ApiKey("agent", b"digest", scope="team")


def kinds(callers: Sequence[Caller]) -> list[str]:
    """As the pool tells them, from all calls of each trajectory."""
    in_use = {caller.identity for caller in callers if caller.has_tools}
    return [kind_of(caller.kind, has_tools=caller.has_tools, in_use=caller.identity in in_use) for caller in callers]


@pytest.mark.parametrize("client", sorted(path.stem for path in CLIENTS.iterdir()))
def test_whose_calls_a_client_makes(client: str) -> None:
    """Under a key with a scope, and nothing in the path. Kinds are what the pool makes of all calls; the replies are told where they
    were recorded."""
    callers, made = Callers(lambda *_: False), list[tuple[Caller, dict[str, str | None]]]()
    for call in json.loads((CLIENTS / f"{client}.json").read_text())["calls"]:
        headers = [(name.encode(), value.encode()) for name, value in call["headers"].items()]
        caller = callers.caller(None, KEY, signs(headers), hints(call["body"]), RetryKey(json.dumps(call["body"])))
        if "reply" in call and caller.on_reply is not None:
            caller.on_reply([json.dumps(call["reply"]).encode()])
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
        assert (caller.source, caller.parent) == (expected["source"], expected["parent"])
    assert kinds([caller for caller, _ in made]) == [expected["kind"] for _, expected in made]


@pytest.mark.parametrize("client", ["claude-code", "codex", "openclaw", "opencode"])
def test_a_path_with_both_ids_holds_whatever_a_client_says(client: str) -> None:
    """Sessions and sub-agents of a client on a path of ours stay on it, and are stored."""
    callers, route = Callers(lambda *_: False), resolve(b"/t/g/v1/chat/completions")
    made, calls = list[Caller](), json.loads((CLIENTS / f"{client}.json").read_text())["calls"]
    for call in calls:
        headers = [(name.encode(), value.encode()) for name, value in call["headers"].items()]
        caller = callers.caller(route, None, signs(headers), hints(call["body"]), RetryKey(""))
        assert (caller.identity, caller.source, caller.parent) == (Identity("g", "t"), "path", None)
        made.append(caller)
    assert kinds(made) == [call["expected"]["kind"] for call in calls]


def recorded(client: str) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = json.loads((TRAFFIC / f"{client}.json").read_text())
    return calls


@pytest.mark.parametrize(
    ("client", "source", "program"),
    [
        ("claude-code", "session:x-claude-code-session-id", "claude-cli/2.1.330"),
        ("codex", "session:thread-id", "codex_exec/0.169.0"),
        ("opencode", "session:x-session-id", "opencode/1.18.33"),
    ],
)
def test_a_recorded_session_is_one_trajectory(client: str, source: str, program: str) -> None:
    """What `make clients` recorded: one session, its program, and as main calls those with tools."""
    callers, made = Callers(lambda *_: False), list[tuple[Caller, dict[str, Any]]]()
    for call in recorded(client):
        headers = [(name.encode(), value.encode()) for name, value in call["headers"].items()]
        made.append((callers.caller(None, KEY, signs(headers), hints(call["body"]), RetryKey("")), call["body"]))
    assert {(caller.source, caller.client, caller.parent) for caller, _ in made} == {(source, program, None)}
    assert len({caller.identity for caller, _ in made}) == 1
    assert kinds([caller for caller, _ in made]) == ["main" if body.get("tools") else "side" for _, body in made]


@pytest.mark.parametrize("client", ["claude-code", "codex", "opencode"])
def test_a_recorded_session_goes_on_by_its_messages(client: str) -> None:
    """Without a name of the session in headers and fields, its turns continue each other."""
    callers = Callers(lambda *_: False)
    made = [
        callers.caller(None, KEY, CallerSigns(), hints(call["body"])._replace(session=None), RetryKey(""))
        for call in recorded(client)
        if call["body"].get("tools")
    ]
    assert {caller.source for caller in made} == {"lineage"}
    assert len({caller.identity for caller in made}) == 1 < len(made)

"""`make clients`: the clients themselves, at locked versions, as `claw client` configures them, over several turns.

Each is installed from its registry, asks through a gateway where that serves its protocol, else the engine itself, and
runs the shell twice. CLAW_CLIENTS=record writes what it sent into `traffic/`, long texts cut, for the tests without clients.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claw_r1.claw.clients import RECIPES, written
from claw_r1.datapool.delta_decoding import bodies
from claw_r1.datapool.view.conversations import BRANCH, CallBodies, conversation
from claw_r1.gateway.protocols import PROTOCOLS
from tests.clients.engine import DONE, TURNS, work
from tests.gateway.engine import Received, ScriptedEngine
from tests.gateway.house import House

HOW = os.environ.get("CLAW_CLIENTS", "")
pytestmark = pytest.mark.skipif(not HOW, reason="installs clients from their registries: make clients")
HERE = Path(__file__).parent
SERVED = {protocol.name for _, protocol in PROTOCOLS}
RUN_S = 120
TEXT_CHARACTERS = 120
HEADERS_LEFT_OUT = ("authorization", "host", "x-api-key")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with the clients, installed as the lock says."""
    folder = tmp_path_factory.mktemp("npm")
    for name in ("package.json", "package-lock.json"):
        (folder / name).write_bytes((HERE / name).read_bytes())
    # Not `npm ci`, which wants the packages of every platform in the lock; versions and digests are the lock's all the same.
    subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=folder, check=True, timeout=400)
    return f"{folder}/node_modules/.bin:{os.environ['PATH']}"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path


def run(name: str, root: str, home: Path, path: str) -> str:
    """One session of a client, configured by its recipe; what it printed."""
    recipe = written(RECIPES[name], {"root": root, "base": f"{root}/v1", "key": "k", "model": "tiny"})
    for place, text in recipe.files:
        file = Path(place.replace("~", str(home))) if place.startswith("~") else home / "work" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    environment = {"HOME": str(home), "PATH": path, "IS_SANDBOX": "1", **dict(recipe.environment)}
    client = subprocess.run(
        ["sh", "-c", recipe.command],
        cwd=home / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert client.returncode == 0, client.stderr[-2000:]
    return client.stdout


@pytest.mark.parametrize("name", ["opencode", "claude-code", "codex"])
def test_a_session_of_several_turns_is_one_conversation(name: str, home: Path, path: str) -> None:
    """Its commands run, it says what the engine said last, and its calls read as one talk beside its side calls."""
    protocol = RECIPES[name].protocol
    with ScriptedEngine(work) as engine, House() as house:
        house.worker(engine.url)
        through = (
            protocol in SERVED and HOW != "record"
        )  # which wants what the client sent, not what a gateway forwards
        output = run(name, f"{house.url}/t/g" if through else engine.url, home, path)
        calls = list(captured(house)) if through else asked(engine, protocol)
    assert DONE in output
    if HOW == "record":
        record(name, engine.requests, home)
    talk = [call for call in calls if b'"tools"' in call.request]
    turns = conversation(talk)
    assert BRANCH not in [turn["content"] for turn in turns]
    results = [turn["content"] for turn in turns if turn["role"] == "tool"]
    assert [f"turn-{number}" in text for number, text in enumerate(results)] == [True] * TURNS


def captured(house: House) -> Iterator[CallBodies]:
    """What the gateway stored, in order."""
    events = house.captured
    requests = bodies({event.call_id: event for event in events})
    assert {event.status for event in events} == {"completed"}
    return (CallBodies.of(event, requests[event.call_id]) for event in events)


def asked(engine: ScriptedEngine, protocol: str) -> list[CallBodies]:
    """What the engine was asked, where no gateway is between."""
    return [CallBodies(protocol, received.body, b"") for received in engine.requests if received.body]


def record(name: str, requests: list[Received], home: Path) -> None:
    """What the client sent, without its keys and this machine's paths."""
    traffic = [
        {
            "path": received.path,
            "headers": {key: text for key, text in received.headers.items() if key not in HEADERS_LEFT_OUT},
            "body": cut(json.loads(received.body.decode().replace(str(home), "/home/agent"))),
        }
        for received in requests
        if received.body
    ]
    text = json.dumps(traffic, indent=1, ensure_ascii=False)
    (HERE / "traffic" / f"{name}.json").write_text(text + "\n")


def cut(value: Any) -> Any:
    """JSON with its long texts cut: equal ones stay equal."""
    if isinstance(value, dict):
        return {key: cut(each) for key, each in value.items()}
    if isinstance(value, list):
        return [cut(each) for each in value]
    if isinstance(value, str) and len(value) > TEXT_CHARACTERS:
        return f"{value[:TEXT_CHARACTERS]}… ({len(value)} characters)"
    return value

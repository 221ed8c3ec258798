"""Which key may do what to whose trajectories: every cell of the table of docs/gateway.md, and no route without its row."""

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from claw_r1.eventlog.memory.readers import MemoryReader
from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.gateway.paths import ANYWHERE, MODELS, OWN_ENDPOINTS
from claw_r1.gateway.protocols import PROTOCOLS
from claw_r1.schemas.api_keys import Role, new_key
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import CallCaptured, CallFailed, GroupOpened, KeyRecorded
from claw_r1.schemas.topics import CALLS, KEYS, REWARDS
from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import House
from tests.gateway.raw import send

PAGE = Path(__file__).parents[3] / "docs" / "gateway.md"
HEAD = ["route", "agent", "annotator", "reader", "operator", "no key", "names"]
ROLES: tuple[Role, ...] = ("agent", "annotator", "reader", "operator")
ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
PAIR = {"chosen": "{id}", "rejected": "{id}2"}
STEP = {"prompt_ids": [1], "response_ids": [2], "reward": 1, "is_last": True}
BODIES: dict[str, object] = {
    "POST …/chat/completions": ASK,
    "POST …/completions": {"model": "tiny", "prompt": "hi"},
    "POST …/messages": {**ASK, "max_tokens": 9},
    "POST …/responses": {"model": "tiny", "input": "hi"},
    "POST …/generate": {"prompt_ids": [1]},
    "POST …/messages/count_tokens": ASK,
    "POST …/rewards": {"value": 1},
    "POST …/feedback": {"thumb": "up"},
    "POST …/submit_steps": {"steps": [STEP]},
    "POST …/complete_trajectory": {"reward": 1},
    "POST /groups": {"group_id": "{id}"},
    "POST /groups/{group_id}/preferences": PAIR,
}
"""What each route is asked; `{id}` is an id. Of the others, nothing."""


class Row(NamedTuple):
    """A line of the table."""

    roles: dict[str, bool]
    """Who may, `no key` among them."""
    names: str
    """own: what a key with a scope names there must be its own."""


def rows() -> dict[str, Row]:
    """The table of the page."""
    cells = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in PAGE.open() if line.startswith("| ")]
    start = cells.index(HEAD) + 1
    table = {}
    for row in cells[start:]:
        if len(row) != len(HEAD) or not row[0].startswith("`"):
            break
        for route in re.findall("`([^`]+)`", row[0]):
            table[route] = Row({name: cell == "yes" for name, cell in zip(HEAD[1:-1], row[1:-1], strict=True)}, row[-1])
    return table


TABLE = rows()


def key_record(key: str, name: str, role: Role, **fields: Any) -> Record:
    digest = sha256(key.encode()).hexdigest()
    event = KeyRecorded(envelope=envelope("test"), digest=digest, name=name, role=role, **fields)
    return Record("claw.keys", 0, 0, 0, digest.encode(), Outgoing.of(KEYS, digest.encode(), event).value)


class Guarded(NamedTuple):
    """A gateway and its keys, by role and what they have besides: nothing, a scope, a silence."""

    house: House
    keys: Mapping[tuple[str, str], str]
    reader: MemoryReader
    """Of all facts; it goes on where it ended, since to read all again for each request costs more than the requests."""

    def written(self) -> list[Any]:
        """The facts since the last look, in the order in which they were made."""
        made: list[Any] = [record.event() for record in self.reader.read_to_end()]
        return sorted(made, key=lambda event: event.envelope.occurred_at_us)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    """A gateway that lets this machine in without keys, too."""
    keys = {}
    with ScriptedEngine() as engine, House(upstreams=engine.url) as house:
        for role in ROLES:
            for kind, fields in (("plain", {}), ("scope", {"scope": "alice"}), ("idle", {"idle_s": 60.0})):
                keys[role, kind] = new_key(role)[0]
                house.keys.apply(key_record(keys[role, kind], f"{role}-{kind}", role, **fields))
        yield Guarded(house, keys, house.log.reader([CALLS, REWARDS]))


async def answer(house: House, route: str, name: str, **headers: str) -> tuple[int, dict[str, Any]]:
    """The status and error of this route, asked about what has this name."""
    method, path = route.split(" ")
    path = path.replace("…", f"/{quote(name, safe='')}/{quote(name, safe='')}/v1")
    path = re.sub(r"{(group_id|order)}", quote(name, safe=""), path).replace("{model_id}", "tiny")
    body = json.dumps(BODIES[route]).replace("{id}", name).encode() if route in BODIES else None
    if route in ("POST …/feedback", "POST /groups/{group_id}/preferences") and headers.pop("named", ""):
        body = json.dumps({**json.loads(body or b""), "who": "ada"}).encode()
    status, reply = await send(house, method, path, body, **headers)
    error = json.loads(reply) if status == 403 else {}
    return status, error.get("error", error)


def test_no_route_is_without_its_row() -> None:
    """Of the protocols and of FastAPI, aliases without and with /v1 as one; no row is of a route that is gone."""
    served = {f"POST …/{end}" for end, _ in PROTOCOLS}
    with House() as house:
        app: Any = house.config.app
        for route in app.routes:
            path = route.path.replace(":path}", "}")
            anywhere = path.removeprefix("/v1/").partition("/{")[0] in (*ANYWHERE, *OWN_ENDPOINTS, MODELS)
            path = f"…{path.removeprefix('/v1')}" if anywhere else path.removeprefix("/v1")
            assert isinstance(route, APIRoute | Route | Mount)
            own = ("GET", "POST") if isinstance(route, Mount) else (route.methods or set())
            if isinstance(route, Mount):
                path += "/…"
            served |= {f"{method} {path}" for method in own if method != "HEAD" or isinstance(route, APIRoute)}
    assert served == set(TABLE)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("route", TABLE)
async def test_a_key_may_what_its_cell_says(guarded: Guarded, route: str, role: Role) -> None:
    """By its role; and where it has a scope or a silence, of what is its own. A refusal leaves nothing, and what is written
    has the key's name."""
    house, (may, names) = guarded.house, TABLE[route]
    guarded.written()
    for kind, own in (("plain", "x/y"), ("scope", "alice/y"), ("idle", f"key={role}-idle/y")):
        asked = {"x_api_key": guarded.keys[role, kind], "named": "" if role == "annotator" else "who"}
        status, error = await answer(house, route, own, **asked)
        assert (status == 403) is not may[role], (kind, error)
        assert status != 401
        written = guarded.written()
        assert {event.envelope.key_name for event in written} <= {f"{role}-{kind}"}
        assert bool(written) <= may[role]
        for foreign in ("bob/y", "alice2/y", "alicia", f"key={role}-idle2/y", "y"):
            status, error = await answer(house, route, foreign, **asked)
            left = guarded.written()
            if may[role] and names == "own" and kind != "plain":
                assert (status, "this key has the scope" in error["message"]) == (403, True), kind
                assert repr(foreign) in error["message"]
                assert left == []
            else:
                assert (status == 403) is not may[role], (kind, error)


@pytest.mark.parametrize("route", TABLE)
async def test_without_a_key_this_machine_may_what_its_cell_says(guarded: Guarded, route: str) -> None:
    """And what is written has no key's name."""
    guarded.written()
    status, error = await answer(guarded.house, route, "alice/y", named="who")
    assert (status == 403) is not TABLE[route].roles["no key"], error
    assert {event.envelope.key_name for event in guarded.written()} <= {None}


@pytest.mark.parametrize("route", TABLE)
async def test_no_row_is_gone_around_by_a_control_character(guarded: Guarded, route: str) -> None:
    """A path that only looks like another one to whom it matters less is no path."""
    house, (method, path) = guarded.house, route.split(" ")
    path = re.sub("{.*}", "x", path.replace("…", "/x/x/v1"))
    key = guarded.keys["agent", "plain"]
    guarded.written()
    for end in ("%0A", "%0d", "%00", "/%0a", "%C2%85"):
        status, reply = await send(house, method, path + end, b"{}" if method == "POST" else None, x_api_key=key)
        assert (status, json.loads(reply or "{}").get("error", {}).get("param", "path")) == (400, "path"), end
    assert guarded.written() == []


async def test_what_is_made_up_for_a_key_is_its_own(guarded: Guarded) -> None:
    """Groups and trajectories without a name; the base URL leads to them; the same request makes the same one."""
    house, key = guarded.house, guarded.keys["agent", "scope"]
    guarded.written()
    for path in ("/groups", "/init_trajectory"):
        made = [
            json.loads((await send(house, "POST", path, b"{}", x_api_key=key, idempotency_key="k"))[1])
            for _ in range(2)
        ]
        assert made[0] == made[1]
        assert made[0]["group_id"].startswith("alice:")  # a proxy may decode it, and a path keeps its parts
    base_url = made[0]["base_url"].removeprefix(house.url)
    assert (await send(house, "POST", f"{base_url}/v1/rewards", b'{"value": 1}', x_api_key=key))[0] == 200
    written = guarded.written()
    assert written[-1].trajectory_id == made[0]["trajectory_id"]
    opened = [event for event in written if isinstance(event, GroupOpened)]
    assert opened[-1].envelope.key_name == "agent-scope"


async def test_a_call_that_is_given_again_has_the_name_of_whoever_asked_again(guarded: Guarded) -> None:
    """Also under an idempotency key, where each try is captured."""
    house, data, id_ = guarded.house, json.dumps(ASK).encode(), quote("alice/again", safe="")
    guarded.written()
    for key in (("agent", "scope"), ("agent", "scope"), ("operator", "plain")):
        path, asked = f"/{id_}/{id_}/v1/chat/completions", {"x_api_key": guarded.keys[key], "idempotency_key": "k"}
        assert (await send(house, "POST", path, data, **asked))[0] == 200
    tries = [(event.attempt, event.envelope.key_name) for event in guarded.written() if event.group_id == "alice/again"]
    assert tries == [(0, "agent-scope"), (1, "agent-scope"), (2, "operator-plain")]


async def test_a_stranger_reaches_a_session_by_nothing(guarded: Guarded) -> None:
    """Alice's session, named by bob: by path, by headers, as parent, by her response's id; equal names of sessions are two."""
    house, alice, bob = guarded.house, guarded.keys["agent", "scope"], guarded.keys["agent", "idle"]
    first = b'{"model": "tiny", "input": "her words"}'
    status, reply = await send(house, "POST", "/v1/responses", first, x_api_key=alice, x_session_id="s1")
    mine = next(e for e in reversed(guarded.written()) if isinstance(e, CallCaptured | CallFailed))
    assert (mine.trajectory_id, mine.envelope.key_name) == ("alice/s1", "agent-scope")
    data = json.dumps(ASK).encode()
    for path, headers in (
        ("/alice%2Fs1/alice%2Fs1/v1/chat/completions", {}),
        ("/alice%2Fs1/v1/chat/completions", {}),
        ("/v1/chat/completions", {"x_claw_trajectory": "alice/s1"}),
        ("/v1/chat/completions", {"x_claw_group": "alice/s1", "x_session_id": "s1"}),
        ("/v1/chat/completions", {"x_claw_parent": "alice/s1", "x_session_id": "s1"}),
    ):
        status, reply = await send(house, "POST", path, data, x_api_key=bob, **headers)
        assert (status, json.loads(reply)["error"]["code"]) == (403, "not_owned"), path
        assert guarded.written() == []
    assert (await send(house, "POST", "/v1/chat/completions", data, x_api_key=bob, x_session_id="s1"))[0] == 200
    assert guarded.written()[-1].trajectory_id == "key=agent-idle/s1"

"""Who may do what on the dashboard: every route x every role. A new route has to say whose it is."""

from collections.abc import Mapping
from typing import get_args

import httpx
import pytest
from fastapi.routing import APIRoute

from claw_r1.consumers.dashboard.app import ROUTES
from claw_r1.consumers.web.sessions import MAY_ON_PAGES, PageAct
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.api_keys import Role, new_key
from claw_r1.schemas.codec import encode
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import KeyRecorded
from claw_r1.schemas.topics import KEYS
from tests.consumers.dashboard.stage import DashboardStage, episode
from tests.patience import until

OF_ACT: Mapping[PageAct, frozenset[str]] = {
    "look": frozenset(
        [
            "GET /state",
            "GET /named",
            "GET /endings",
            "GET /columns",
            "GET /rows",
            "GET /facets",
            "GET /neighbours",
            "GET /conversations",
            "GET /group",
            "GET /group/pair",
            "GET /group/tokens",
            "GET /trajectory",
            "GET /trajectory/calls",
            "GET /trajectory/messages",
            "GET /trajectory/message",
            "GET /trajectory/find",
            "GET /tokens",
            "GET /tokens/messages",
            "GET /acts",
            "GET /judged",
            "GET /queue",
            "GET /subject",
        ]
    ),
    "judge": frozenset(["POST /curations", "POST /acts/undo", "POST /judgements", "POST /preferences"]),
    "watch": frozenset(
        [
            "GET /overview",
            "GET /overview/log",
            "GET /record",
            "GET /operations/processes",
            "GET /operations/topics",
            "GET /operations/letters",
            "GET /operations/letter",
            "GET /lab/fields",
            "GET /lab/preview",
            "GET /runs",
            "GET /runs/whole",
            "GET /runs/curves",
            "GET /batch",
            "GET /batch/replies",
            "GET /runs/skipped",
            "GET /lineage",
            "GET /rewards",
            "GET /rewards/agreement",
            "GET /rewards/said",
            "GET /rewards/verdict",
        ]
    ),
    "operate": frozenset(["POST /evictions", "POST /operations/redrive", "POST /rewards/trial"]),
}


def test_every_route_is_for_the_roles_of_its_act() -> None:
    """403 for whom it is not, something else for whom it is, 401 without a key; writes without the session's token are refused."""
    routes = [route for router in ROUTES for route in router.routes if isinstance(route, APIRoute)]
    names = {f"{method} {route.path.removeprefix('/api/v1')}" for route in routes for method in route.methods}
    assert names == set().union(*OF_ACT.values())
    stage = DashboardStage(episode("g", "t", "which?", "this one"))
    secrets: dict[Role, str] = {}
    for role in get_args(Role):
        secrets[role], entry = new_key(role)
        key = KeyRecorded(envelope=envelope("test"), digest=entry.partition(":")[2], name=f"the {role}", role=role)
        stage.log.append([Outgoing(topic=KEYS, key=key.digest.encode(), value=encode(key))])
    with stage.served(keys=True) as url:
        for role, secret in secrets.items():
            with httpx.Client(base_url=f"{url}/api/v1", timeout=30) as http:
                assert http.get("/state").status_code == 401
                answer = http.post("/session", json={"key": secret})
                assert answer.status_code == (403 if role == "agent" else 200)
                for act, routes_of_act in OF_ACT.items():
                    for name in routes_of_act:
                        method, path = name.split()
                        token = answer.json().get("token", "")
                        status = http.request(method, path, headers={"x-page-token": token}, json=None).status_code
                        expected_403 = role != "agent" and role not in MAY_ON_PAGES[act]
                        assert (status == 403) == expected_403, (role, name, status)
                        assert (status == 401) == (role == "agent"), (role, name, status)
                        if method == "POST" and role in MAY_ON_PAGES[act]:
                            assert http.post(path, json={}).status_code == 401, (role, name)


@pytest.mark.parametrize("narrowed", [{"scope": "alice"}, {"idle_s": 60.0}], ids=["scope", "idle_s"])
def test_a_key_that_reaches_its_scope_alone_opens_no_page(narrowed: dict[str, object]) -> None:
    """The page shows all of the pool: neither a new session, nor one whose key is narrowed while it is open."""
    stage, (secret, entry) = DashboardStage(episode("g", "t", "which?", "this one")), new_key("reader")

    def record(**more: object) -> None:
        key = KeyRecorded(envelope=envelope("test"), digest=entry[-64:], name="alice", role="reader", **more)  # type: ignore[arg-type]  # the fields of a row
        stage.log.append([Outgoing(topic=KEYS, key=key.digest.encode(), value=encode(key))])

    record()
    with stage.served(keys=True) as url, httpx.Client(base_url=f"{url}/api/v1", timeout=30) as http:
        assert http.post("/session", json={"key": secret}).status_code == 200
        assert http.get("/state").status_code == 200
        record(**narrowed)
        until(lambda: http.get("/state").status_code == 401, "the session ends")
        refused = http.post("/session", json={"key": secret})
        assert (refused.status_code, "--scope" in refused.json()["detail"]) == (403, True)

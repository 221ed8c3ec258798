"""The routes by which people ask a worker for something."""

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from claw_r1.rollout.plugin.control_routes import ControlRequests
from claw_r1.weights.sources import SECRET_VARIABLE


def control(secret: str, monkeypatch: pytest.MonkeyPatch, client: tuple[str, int]) -> TestClient:
    """A client of the routes by which people ask, where both sides may have a secret."""
    monkeypatch.setenv(SECRET_VARIABLE, secret)
    app = FastAPI()
    requests = ControlRequests()
    requests.attach(app)
    app.state.control_requests = requests
    return TestClient(app, "http://127.0.0.1:8001", client=client)


@pytest.mark.parametrize(
    ("secret", "header", "host", "status"),
    [
        ("", "", "127.0.0.1", 202),
        ("", "", "203.0.113.1", 401),
        ("s", "Bearer s", "203.0.113.1", 202),
        ("s", "Bearer t", "127.0.0.1", 401),
        ("s", "", "127.0.0.1", 401),
    ],
)
def test_who_knows_the_secret_may_ask(
    monkeypatch: pytest.MonkeyPatch, secret: str, header: str, host: str, status: int
) -> None:
    """Where no secret is set, this host may; a request is taken once."""
    client = control(secret, monkeypatch, (host, 1))
    for path in ("/claw/probe", "/claw/drain", "/claw/probe"):
        reply = client.post(path, headers={"authorization": header})
        assert reply.status_code == status
        assert (reply.json() == {"accepted": True}) == (status == 202)
    requests = client.app.state.control_requests  # type: ignore[attr-defined]  # starlette types it as any ASGI app
    assert requests.take() == (["probe", "drain"] if status == 202 else [])
    assert requests.take() == []


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"host": "evil.example:8001"}],
    ids=["origin", "sandbox", "rebound-name"],
)
def test_a_web_page_asks_for_nothing(monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]) -> None:
    """A browser of this host sends any page's POST to the worker: without a secret it would drain it for good."""
    client = control("", monkeypatch, ("127.0.0.1", 1))
    assert client.post("/claw/drain", headers=headers).status_code == 401
    assert client.post("/claw/drain", headers={"host": "worker.localhost:8001"}).status_code == 202
    with_secret = control("s", monkeypatch, ("127.0.0.1", 1))
    assert with_secret.post("/claw/drain", headers={**headers, "authorization": "Bearer s"}).status_code == 202

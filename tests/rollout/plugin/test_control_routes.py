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
    return TestClient(app, client=client)


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

"""Bad input: refused in OpenAI's shape, nothing stored, the next good request served."""

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.gateway.engine import Reply, ScriptedEngine
from tests.gateway.house import House
from tests.gateway.raw import BODIES, CHAT, GOOD, send


@pytest.mark.parametrize(("path", "body"), BODIES, ids=lambda value: str(value[:32]))
async def test_bad_bodies(hardened: House, path: str, body: bytes) -> None:
    """Every malformed body is a 400 with an error object; nothing is written; the next request works."""
    before = len(hardened.raw_records())
    status, reply = await send(hardened, "POST", path, body, content_type="application/json")
    error = json.loads(reply)["error"]
    assert status == 400, reply
    assert set(error) == {"message", "type", "param", "code"}
    assert b"Traceback" not in reply
    assert len(hardened.raw_records()) == before
    assert (await send(hardened, "POST", CHAT, GOOD))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/t/g/v1/responses/resp_1", 404),
        ("POST", "/t/g/v1/chat/completions/", 404),
        ("GET", "/", 404),
        ("POST", "/a/b/c/v1/chat/completions", 404),
        ("POST", "/pause", 404),
        ("POST", "/t/g/v1/embeddings", 404),
        ("POST", "/v1/rewards", 404),
        ("POST", "/v1/submit_steps", 404),
        ("POST", "/v1/complete_trajectory", 404),
        ("GET", CHAT, 405),
        ("DELETE", CHAT, 405),
        ("GET", "/groups", 405),
        ("GET", "/t/g/rewards", 405),
        ("POST", "/livez", 405),
        ("POST", "/%00/g/v1/chat/completions", 400),
        ("POST", "/%ED%A0%80/g/v1/chat/completions", 400),
        ("POST", "/t//v1/chat/completions", 400),
        ("POST", f"/{'x' * 513}/g/v1/chat/completions", 400),
    ],
)
async def test_bad_routes(hardened: House, method: str, path: str, status: int) -> None:
    """Unknown paths, wrong methods and bad ids are refused in OpenAI's shape."""
    before = len(hardened.raw_records())
    got, reply = await send(hardened, method, path, b'{"value": 1}' if method == "POST" else None)
    assert got == status
    assert set(json.loads(reply)["error"]) == {"message", "type", "param", "code"}
    assert len(hardened.raw_records()) == before


@pytest.mark.parametrize("prefix", ["", "/t", "/t/g"])
@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/x/y/z/v1/messages", "no such route"),
        ("/v1/embeddings", "/v1/embeddings"),
        ("/v2/nothing", "no such route"),
        ("/x/y/z/v1/chat/completions", "no such route"),
    ],
)
async def test_a_404_says_what_is_served(hardened: House, prefix: str, path: str, named: str) -> None:
    """In the shape that its caller reads, before the body is looked at: what it asked for, and what it may ask for."""
    status, reply = await send(hardened, "POST", prefix + path, b" " * 2_000_000 if named[0] == "/" else b"{}")
    said = json.loads(reply)
    assert status == 404
    assert said["error"]["message"].startswith(named)
    assert "POST /{trajectory_id}/{group_id}/v1/chat/completions" in said["error"]["message"]
    if "messages" in path:
        assert (said["type"], said["error"]["type"]) == ("error", "not_found_error")
    else:
        assert list(said) == ["error"]
    _, reply = await send(hardened, "POST", prefix + path, b"{}", anthropic_version="2023-06-01")
    if not path.endswith(("chat/completions", "messages")):  # which has a protocol, and so a shape
        error = {"type": "not_found_error", "message": said["error"]["message"]}
        assert json.loads(reply) == {"type": "error", "error": error}


@pytest.mark.parametrize("path", [CHAT, "/groups", "/t/g/rewards"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_have_a_limit(engine: ScriptedEngine, path: str, chunked: bool) -> None:
    """A body over the limit is a 413, with declared length or without; the next request works."""
    with House(body_bytes_max=1000, control_bytes_max=1000) as house:
        house.worker(engine.url)
        data = b" " * 1_000_000

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(data), 100_000):
                yield data[start : start + 100_000]

        async with (
            aiohttp.ClientSession() as session,
            session.post(house.url + path, data=pieces() if chunked else data) as reply,
        ):
            assert reply.status == 413
            assert (await reply.json())["error"]["code"] == "body_too_large"
        assert engine.requests == []
        assert (await send(house, "POST", CHAT, GOOD))[0] == 200


@pytest.mark.slow
async def test_a_thousand_bad_requests_in_a_row(house: House) -> None:
    """Malformed requests cost nothing lasting."""
    async with aiohttp.ClientSession() as session:
        for number in range(1000):
            path, body = BODIES[number % len(BODIES)]
            async with session.post(house.url + path, data=body) as reply:
                assert reply.status == 400
    assert (await send(house, "POST", CHAT, GOOD))[0] == 200


SECRET = "sk-planted-51d0"


async def test_secrets_are_nowhere(house: House, engine: ScriptedEngine, capfd: pytest.CaptureFixture[str]) -> None:
    """Authorization, cookies and API keys reach no event, log line, metric or worker, on success and on failure."""
    secret = {"authorization": f"Bearer {SECRET}", "cookie": f"s={SECRET}", "x-api-key": SECRET, "api-key": SECRET}
    named = {name.replace("-", "_"): value for name, value in secret.items()}
    assert (await send(house, "POST", CHAT, GOOD, **named))[0] == 200
    assert (await send(house, "POST", "/t/g/rewards", b'{"value": 1}', **named))[0] == 200
    assert (await send(house, "POST", "/groups", b"{}", **named))[0] == 201
    assert (await send(house, "POST", CHAT, b"{", **named))[0] == 400
    assert (await send(house, "POST", CHAT, b'{"messages": [], "model": "none"}', **named))[0] == 404
    engine.then(Reply({"error": {"message": f"wrong key: {SECRET}"}}, status=401))
    assert (await send(house, "POST", CHAT, GOOD, **named))[0] == 401
    assert SECRET.encode() not in house.raw_records()
    assert SECRET.encode() not in house.metrics.exposition()
    assert SECRET not in "".join(capfd.readouterr())
    assert all(SECRET not in str(request) for request in engine.requests)


async def test_credentials_reach_fixed_upstreams_only(engine: ScriptedEngine) -> None:
    """A fixed upstream gets the Authorization header, and no event does."""
    with House(upstreams=engine.url) as house:
        assert (await send(house, "POST", CHAT, GOOD, authorization=f"Bearer {SECRET}", cookie=f"s={SECRET}"))[0] == 200
        assert engine.requests[0].headers["authorization"] == f"Bearer {SECRET}"
        assert "cookie" not in engine.requests[0].headers
        assert SECRET.encode() not in house.raw_records()

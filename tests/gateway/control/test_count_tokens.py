"""Tokens of a request, counted by an engine: no call, and nothing in the log."""

import json

import pytest

from tests.gateway.engine import Reply, ScriptedEngine
from tests.gateway.house import House
from tests.gateway.raw import send
from tests.patience import until

PATH = "/t/g/v1/messages/count_tokens"
ASK = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
COUNT = Reply({"input_tokens": 7})


async def count(house: House, body: object = ASK, path: str = PATH) -> tuple[int, bytes]:
    return await send(house, "POST", path, body if isinstance(body, bytes) else json.dumps(body).encode())


@pytest.mark.parametrize("path", [PATH, PATH + "?beta=true", "/v1/messages/count_tokens", "/messages/count_tokens"])
async def test_an_engine_counts(house: House, engine: ScriptedEngine, path: str) -> None:
    """With its own route and the client's bytes; it is counted in metrics, and in no topic."""
    engine.then(COUNT)
    assert await count(house, path=path) == (200, b'{"input_tokens": 7}')
    (received,) = engine.requests
    assert (received.path, received.json) == ("/v1/messages/count_tokens", ASK)
    assert house.raw_records() == b""
    until(lambda: 'requests_total{route="count_tokens",status="200"} 1.0' in house.metrics.exposition().decode())


async def test_models_and_aliases_are_those_of_calls(engine: ScriptedEngine) -> None:
    """A known name goes to its worker, an alias to what it names, any other is a 404 in Anthropic's shape."""
    with House(aliases="claude-*=tiny") as house, ScriptedEngine() as other:
        house.worker(engine.url)
        house.worker(other.url, "w1", model="big")
        other.then(COUNT)
        assert (await count(house, {**ASK, "model": "big"}))[0] == 200
        engine.then(COUNT)
        assert (await count(house, {**ASK, "model": "claude-opus"}))[0] == 200
        assert engine.requests[0].json["model"] == "tiny"
        status, reply = await count(house, {**ASK, "model": "gpt"})
        assert (status, json.loads(reply)["error"]["type"]) == (404, "not_found_error")


async def test_a_body_may_be_as_large_as_a_calls(house: House, engine: ScriptedEngine) -> None:
    """And no larger."""
    engine.then(COUNT)
    assert (await count(house, {**ASK, "system": "x" * (2 << 20)}))[0] == 200
    status, reply = await count(house, {**ASK, "system": "x" * (5 << 20)})
    assert (status, json.loads(reply)["error"]["type"]) == (413, "request_too_large")


OWN = {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}


@pytest.mark.parametrize(
    ("refusal", "message"),
    [(OWN, "no"), ({"error": {"message": "no"}}, "no"), ({"detail": 1}, "the engine answers 400")],
)
async def test_a_refusal_has_anthropics_shape(
    house: House, engine: ScriptedEngine, refusal: dict[str, object], message: str
) -> None:
    """Whatever shape the engine gave it."""
    engine.then(Reply(refusal, status=400))
    status, reply = await count(house)
    assert (status, json.loads(reply)) == (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": message}},
    )


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": 1}'])
async def test_a_body_that_is_none_is_refused(house: House, engine: ScriptedEngine, body: bytes) -> None:
    """Before any engine hears of it."""
    status, reply = await count(house, body)
    assert (status, json.loads(reply)["type"], engine.requests) == (400, "error", [])


async def test_an_engine_that_breaks_is_replaced(house: House, engine: ScriptedEngine) -> None:
    """As for a call; when none is left, the error is Anthropic's."""
    engine.then(Reply(reset=True), COUNT)
    assert (await count(house))[0] == 200
    engine.default = lambda _: Reply(status=500)
    status, reply = await count(house)
    assert (status, json.loads(reply)["error"]["type"]) == (502, "api_error")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("prefix", ["", "/t", "/t/g"])
async def test_the_gateway_says_hello(house: House, method: str, prefix: str) -> None:
    """As Claude Code asks its base URL before the first call."""
    assert (await send(house, method, f"{prefix}/api/hello", None))[0] == 200

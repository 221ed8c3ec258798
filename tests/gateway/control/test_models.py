"""The list of models and single ones, in the shapes of their callers, with the names that are aliases."""

import json

import pytest

from claw_r1.schemas.api_keys import ApiKey, new_key
from tests.gateway.engine import Reply, ScriptedEngine
from tests.gateway.house import House
from tests.gateway.http.test_auth_topic import record
from tests.gateway.raw import send

VERSION = {"anthropic_version": "2023-06-01"}
ALIASES = "claude-*=tiny,gpt-5=tiny,org/big=tiny,gone=away"


async def get(house: House, path: str, **headers: str) -> tuple[int, dict]:  # type: ignore[type-arg]  # JSON of any shape
    status, reply = await send(house, "GET", path, None, **headers)
    return status, json.loads(reply)


@pytest.mark.parametrize("upstream", [False, True])
async def test_the_list_has_its_callers_shape(engine: ScriptedEngine, upstream: bool) -> None:
    """Exact aliases of what is served are listed, patterns and aliases of nothing are not."""
    with House(aliases=ALIASES, upstreams=engine.url if upstream else "") as house:
        if not upstream:
            house.worker(engine.url)
        status, reply = await get(house, "/t/g/v1/models")
        names = ["tiny", "gpt-5", "org/big"]
        assert (status, reply["object"], [model["id"] for model in reply["data"]]) == (200, "list", names)
        assert {model["object"] for model in reply["data"]} == {"model"}
        status, reply = await get(house, "/t/g/v1/models", **VERSION)
        assert (status, reply["has_more"], reply["first_id"], reply["last_id"]) == (200, False, "tiny", "org/big")
        assert reply["data"][1] == {
            "type": "model",
            "id": "gpt-5",
            "display_name": "gpt-5",
            "created_at": "1970-01-01T00:00:00Z",
        }


@pytest.mark.parametrize("passes", [True, False])
async def test_the_list_is_asked_for_as_a_call_would_be(engine: ScriptedEngine, passes: bool) -> None:
    """With the provider's key, where calls have it, and never with ours."""
    key, _ = new_key("agent")
    with House(upstreams=engine.url, upstream_authorization=passes) as house:
        house.keys.apply(record(key))
        for path in ("/v1/models", "/t/g/v1/models/tiny"):
            sent = {"authorization": "Bearer provider", "x_api_key": key, **VERSION}
            assert (await get(house, path, **sent))[0] == 200
            headers = engine.requests[-1].headers
            assert headers.get("authorization") == ("Bearer provider" if passes else None)
            assert (headers["anthropic-version"], "x-api-key" in headers) == ("2023-06-01", False)


@pytest.mark.parametrize("prefix", ["", "/t", "/t/g", "/t/g/v1", "/v1", "/models/models/v1"])
@pytest.mark.parametrize(
    ("path", "name"),
    [("tiny", "tiny"), ("claude-opus", "claude-opus"), ("org/big", "org/big"), ("org%2Fbig", "org/big")],
)
async def test_a_model_is_found_by_the_name_that_a_call_may_have(
    engine: ScriptedEngine, prefix: str, path: str, name: str
) -> None:
    """Its own, or an alias of it, patterns included; slashes as SDKs send them."""
    with House(aliases=ALIASES) as house:
        house.worker(engine.url)
        assert await get(house, f"{prefix}/models/{path}") == (
            200,
            {"id": name, "object": "model", "created": 0, "owned_by": "claw"},
        )
        assert (await get(house, f"{prefix}/models/{path}", **VERSION))[1]["id"] == name


async def test_an_unknown_model_is_a_404_in_its_callers_shape(engine: ScriptedEngine) -> None:
    """An alias of nothing that is served is unknown, too."""
    with House(aliases=ALIASES) as house:
        house.worker(engine.url)
        for name in ("big", "gone", "t/g/v1/nothing"):
            status, reply = await get(house, f"/v1/models/{name}")
            assert (status, reply["error"]["code"], reply["error"]["param"]) == (404, "model_not_found", "model")
            status, reply = await get(house, f"/v1/models/{name}", **VERSION)
            assert (status, reply["type"], reply["error"]["type"]) == (404, "error", "not_found_error")


async def test_a_keys_aliases_are_its_own(house: House) -> None:
    """They are listed for it."""
    key = ApiKey("agent", b"", aliases={"mine": "tiny"})
    house.keys.everyones = key
    assert [model["id"] for model in (await get(house, "/v1/models"))[1]["data"]] == ["tiny", "mine"]
    assert (await get(house, "/v1/models/mine"))[0] == 200


@pytest.mark.parametrize(
    ("reply", "status"),
    [(Reply(b"[]"), 502), (Reply({"data": [{}]}), 502), (Reply({"data": 1}), 502), (Reply(b"", status=401), 401)],
)
async def test_a_provider_may_list_nonsense(engine: ScriptedEngine, reply: Reply, status: int) -> None:
    """Which is no list for a client."""
    with House(upstreams=engine.url) as house:
        engine.then(reply)
        assert (await get(house, "/v1/models"))[0] == status


async def test_nothing_serves_anything() -> None:
    """503, as for a call."""
    with House() as house:
        assert (await get(house, "/v1/models/tiny"))[1]["error"]["code"] == "no_worker"

"""Requests that engines get otherwise than clients wrote them: what changes, what never does, and what the event says."""

import json

import aiohttp
import pytest
from pydantic import ValidationError

from claw_r1.gateway.adaptation import Adaptation
from claw_r1.gateway.errors import InvalidRequest
from claw_r1.gateway.openai.chat import ChatCompletions
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.gateway.upstream.engines import EngineTable
from claw_r1.schemas.api_keys import ApiKey
from tests.gateway.engine import ScriptedEngine
from tests.gateway.house import ASK, House, ask, report

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"maximum": 2**70}, "strict": True}}


def key(**fields: object) -> ApiKey:
    return ApiKey("agent", b"", **fields)  # type: ignore[arg-type]  # fields by name, of any type


def adapted(body: object, of: ApiKey | None = None, **settings: object) -> tuple[object, tuple[str, ...]]:
    """The request that an engine gets, and the words for what changed; a worker serves `tiny`."""
    engines = EngineTable(600.0)
    engines.apply(report("http://127.0.0.1:1"))
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    plain, words, _ = Adaptation(GatewaySettings(**settings), engines).adapt(raw, of)  # type: ignore[arg-type]  # fields by name, of any type
    return (json.loads(plain) if words else plain), words


MODELS = {
    "served": ("tiny", {"*": "other", "tiny": "other"}, "tiny"),
    "unknown": ("gpt-5", {"claude-*": "tiny"}, "gpt-5"),
    "pattern": ("claude-opus", {"claude-*": "tiny"}, "tiny"),
    "exact first": ("claude-opus", {"claude-*": "b", "claude-opus": "tiny"}, "tiny"),
    "longest first": ("claude-opus", {"claude-o*": "tiny", "*": "b", "c*": "b"}, "tiny"),
    "case counts": ("Claude-opus", {"claude-*": "tiny"}, "Claude-opus"),
    "no string": (7, {"*": "tiny"}, 7),
    "none": (None, {"*": "tiny"}, None),
    "side": ("weak", {"weak": "tiny:side"}, "tiny"),
    "no alias": ("other:side", {"weak": "tiny:side"}, "other:side"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("by_key", [False, True])
def test_models_have_aliases(name: str, by_key: bool) -> None:
    """By key or setting, where no live worker serves the name itself."""
    asked, aliases, served = MODELS[name]
    body = {"model": asked, "messages": []}
    got, words = adapted(body, key(aliases=aliases)) if by_key else adapted(body, aliases=aliases)
    if asked == served:
        assert (got, words) == (json.dumps(body).encode(), ())
    else:
        assert (got, words) == ({"model": served, "messages": []}, ("model",))


async def test_calls_of_a_weak_models_alias_are_side_calls(house: House) -> None:
    """aider's commit messages, which have tools as little as its turns; the client's own word counts before."""
    aliases = key(aliases={"weak": "tiny:side", "strong": "tiny"})
    house.keys.everyones = aliases
    for model in ("weak", "strong", "tiny"):
        assert (await ask(house, {**ASK, "model": model}, f"/{model}/{model}/v1/chat/completions")).status == 200
    assert (await ask(house, {**ASK, "model": "weak"}, "/said/said/v1/chat/completions", kind="main")).status == 200
    kinds = {call.trajectory_id: call.call_kind for call in house.captured}
    assert kinds == {"weak": "side", "strong": None, "tiny": None, "said": "main"}
    assert {call.adapted for call in house.captured if call.trajectory_id in ("weak", "strong")} == {("model",)}
    async with aiohttp.ClientSession(house.url) as session, session.get("/v1/models") as reply:
        assert sorted(model["id"] for model in (await reply.json())["data"]) == ["strong", "tiny", "weak"]
    async with aiohttp.ClientSession(house.url) as session, session.get("/v1/models/weak") as reply:
        assert (await reply.json())["id"] == "weak"


def test_a_keys_rules_win() -> None:
    """Over those of the gateway, one by one."""
    settings = {"aliases": "x=no,y=tiny", "sampling": "temperature=0.5,top_k=7", "strip_strict": False}
    own = key(aliases={"x": "tiny"}, sampling={"temperature": 1.0})
    assert adapted({"model": "x"}, own, **settings)[0] == {"model": "tiny", "temperature": 1, "top_k": 7}
    assert adapted({"model": "y", "top_k": 7, "temperature": 1.0}, own, **settings) == (
        {"model": "tiny", "top_k": 7, "temperature": 1.0},
        ("model",),
    )
    assert adapted({"model": "x"}, key(), **settings)[0] == {"model": "no", "temperature": 0.5, "top_k": 7}


def test_strict_is_taken_out_of_tools() -> None:
    """Of chat's functions, of tools as responses and messages have them, and of namespaces; nothing else is touched."""
    flat, off = {"type": "function", "name": "g", "strict": True}, {"type": "function", "name": "h", "strict": False}
    tools = [TOOL, flat, {"type": "namespace", "tools": [flat]}, "no tool", {"function": "none"}]
    got, words = adapted({"tools": tools, "strict": True}, key(strip_strict=True))
    assert words == ("strict",)
    bare = {"type": "function", "name": "g"}
    function = {"name": "f", "parameters": {"maximum": 2**70}}
    assert got == {
        "tools": [
            {"type": "function", "function": function},
            bare,
            {"type": "namespace", "tools": [bare]},
            *tools[3:],
        ],
        "strict": True,
    }
    for body in ({"tools": [off]}, {"tools": "strict"}, {}, {"tools": None}, [], {"strict": True}):
        assert adapted(body, key(strip_strict=True)) == (json.dumps(body).encode(), ())


@pytest.mark.parametrize("body", [b"", b"[1", b'"x"', b'{"a": NaN}', b"\xff"])
def test_what_is_no_object_is_left_to_its_protocol(body: bytes) -> None:
    """Whose refusal has its shape."""
    assert adapted(body, key(sampling={"top_p": 1.0})) == (body, ())


def test_numbers_stay_as_they_are() -> None:
    """Those beyond 64 bits, too; of members of one name the last counts, as it does for engines."""
    body = b'{"seed": 12345678901234567890123, "x": 0.1000000000000000055, "temperature": 0, "temperature": 0.3}'
    got, words = adapted(body, key(sampling={"temperature": 1.0}))
    assert got == {"seed": 12345678901234567890123, "x": 0.1, "temperature": 1}
    assert words == ("sampling",)


def test_a_body_that_cannot_be_written_anew_is_refused() -> None:
    """Rather than forwarded as something else."""
    with pytest.raises(InvalidRequest):
        adapted(b'{"x": %b%b}' % (b"[" * 1000, b"]" * 1000), key(sampling={"top_p": 1.0}))


@pytest.mark.parametrize(
    "settings", [{"aliases": "x"}, {"aliases": "=tiny"}, {"sampling": "n=2"}, {"sampling": "top_p=nan"}]
)
def test_bad_rules_are_refused_at_the_start(settings: dict[str, str]) -> None:
    """Before a call meets them."""
    with pytest.raises(ValidationError):
        GatewaySettings(**settings)  # type: ignore[arg-type]  # fields by name, of any type


async def test_the_event_keeps_what_was_asked_and_says_what_was_done(engine: ScriptedEngine) -> None:
    """Its sampling is that of the engine; so a client that is greedy and strict is trainable."""
    body = json.dumps({**ASK, "model": "claude-opus", "temperature": 0, "tools": [TOOL]}).encode()
    with House(aliases="claude-*=tiny", sampling="temperature=1", strip_strict=True) as house:
        house.worker(engine.url)
        reply = await ask(house, body)
        assert reply.status == 200
        (event,), (received,) = house.captured, engine.requests
    assert event.request.suffix == body
    assert event.adapted == ("model", "strict", "sampling")
    assert (event.sampling.temperature, event.sampling.constrained, event.integrity.complete) == (1.0, False, True)
    forwarded = received.json
    assert (forwarded["model"], forwarded["temperature"]) == ("tiny", 1)
    assert forwarded["tools"] == [{"type": "function", "function": {"name": "f", "parameters": {"maximum": 2**70}}}]


async def test_a_request_to_which_nothing_applies_is_forwarded_as_it_came(engine: ScriptedEngine) -> None:
    """Byte for byte."""
    body = b'{ "messages":[],\t"model":"tiny", "temperature": 1.0 }'
    with House(aliases="claude-*=tiny", sampling="temperature=1", strip_strict=True) as house:
        house.worker(engine.url)
        await ask(house, body)
        assert engine.requests[0].body == body
        assert house.captured[0].adapted == ()


async def test_a_provider_gets_the_adapted_request_too(engine: ScriptedEngine) -> None:
    """Its models are known to nobody."""
    with House(upstreams=engine.url, aliases="best=big", sampling="top_p=1") as house:
        await ask(house, {**ASK, "model": "best"})
        assert engine.requests[0].json == {**ASK, "model": "big", "top_p": 1}
        assert (house.captured[0].adapted, house.captured[0].model_id) == (("model", "sampling"), "big")


def test_rules_of_nobody_cost_no_look_at_the_body() -> None:
    """What is parsed is the protocol's business alone."""
    body = b"{" * 10
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        Adaptation(GatewaySettings(), EngineTable(1.0)).request(ChatCompletions(), body, key())

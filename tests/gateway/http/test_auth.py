"""API keys: who gets in, and that a key goes nowhere."""

import contextlib
import json
from collections.abc import Iterator

import aiohttp
import pytest
from pydantic import ValidationError

from claw_r1.gateway.settings import GatewaySettings
from claw_r1.schemas.api_keys import new_key
from tests.gateway.engine import Reply, ScriptedEngine, chunk, completion, written
from tests.gateway.house import House
from tests.gateway.processes import poll
from tests.gateway.raw import CHAT, GOOD, say, send

AGENT, AGENT_ENTRY = new_key("agent")
OPERATOR, OPERATOR_ENTRY = new_key("operator")
ASKS = {"logprobs": True, "return_token_ids": True}


@pytest.fixture(scope="module")
def guarded() -> Iterator[House]:
    """A gateway that knows one key of each role, before a fixed upstream that gets credentials passed on."""
    with ScriptedEngine() as engine, House(upstreams=engine.url, api_keys=f"{AGENT_ENTRY}, {OPERATOR_ENTRY}") as house:
        house.engine = engine  # type: ignore[attr-defined]  # an attribute of the test's own
        yield house


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": AGENT},
        {"authorization": f"Basic {AGENT}"},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {AGENT}x"},
        {"authorization": f"Bearer {AGENT_ENTRY}"},
        {"authorization": f"Bearer {AGENT_ENTRY.partition(':')[2]}"},
        {"x_api_key": ""},
        {"x_api_key": AGENT[:-1]},
        {"x_api_key": "x" * 10_000},
        {"cookie": f"api_key={AGENT}"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", CHAT),
        ("POST", "/groups"),
        ("POST", "/t/g/rewards"),
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("GET", "/x"),
    ],
)
async def test_without_a_key_nothing_is_answered(
    guarded: House, headers: dict[str, str], method: str, path: str
) -> None:
    """Every route but the health routes needs a whole key, in one of two headers; not its hash, not in a query."""
    before = len(guarded.raw_records())
    status, reply = await send(
        guarded, method, f"{path}?api_key={AGENT}", GOOD if method == "POST" else None, **headers
    )
    assert status == 401
    assert json.loads(reply)["error"]["code"] == "invalid_api_key"
    assert len(guarded.raw_records()) == before


@pytest.mark.parametrize(
    "headers", [{"authorization": f"Bearer {AGENT}"}, {"authorization": f"bearer  {AGENT}"}, {"x_api_key": AGENT}]
)
async def test_a_key_opens_in_either_header(guarded: House, headers: dict[str, str]) -> None:
    """As the OpenAI SDK sends it, or as Anthropic's does."""
    assert (await send(guarded, "POST", CHAT, GOOD, **headers))[0] == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/version"])
async def test_health_is_open(guarded: House, path: str) -> None:
    """A load balancer needs no key."""
    assert (await send(guarded, "GET", path, None))[0] == 200


async def test_metrics_are_for_operators(guarded: House) -> None:
    """An agent's key reads no metrics, an operator's does, and calls models, too."""
    assert (await send(guarded, "GET", "/metrics", None, x_api_key=AGENT))[0] == 403
    assert (await send(guarded, "GET", "/metrics", None, x_api_key=OPERATOR))[0] == 200
    assert (await send(guarded, "POST", CHAT, GOOD, x_api_key=OPERATOR))[0] == 200


async def test_our_key_is_not_passed_on_but_a_providers_is(guarded: House) -> None:
    """A fixed upstream gets the provider's key that stands beside ours, never ours."""
    engine: ScriptedEngine = guarded.engine  # type: ignore[attr-defined]  # an attribute of the test's own
    await send(guarded, "POST", CHAT, GOOD, authorization=f"Bearer {AGENT}")
    assert "authorization" not in engine.requests[-1].headers
    await send(guarded, "POST", CHAT, GOOD, authorization=f"Bearer {AGENT}", x_api_key=AGENT)
    assert "authorization" not in engine.requests[-1].headers
    await send(guarded, "POST", CHAT, GOOD, authorization="Bearer provider", x_api_key=AGENT)
    assert engine.requests[-1].headers["authorization"] == "Bearer provider"
    assert AGENT not in str(engine.requests)
    assert AGENT.encode() not in guarded.raw_records() + guarded.metrics.exposition()


@pytest.mark.parametrize("key", ["sk-planted-51d0", "a+b/c==51d0"])
@pytest.mark.parametrize(
    "shape",
    [
        b'{"error": {"message": "wrong key: %b"}}',
        b"%b?",
        b'{"detail": "%b"}',
        b"x" * 990 + b"%b",
        b'{"detail": "by its numbers: %b"}',
        b'{"error": {"message": "it said: {\\"key\\": \\"by its numbers: %b\\"}"}}',
    ],
)
async def test_a_key_that_a_provider_repeats_is_not_stored(guarded: House, key: str, shape: bytes) -> None:
    """The client gets the 401 with its words; the event tells of it without the key, however the words hold it."""
    engine: ScriptedEngine = guarded.engine  # type: ignore[attr-defined]  # an attribute of the test's own
    written = f"Bearer {key}".replace("/", "\\/") if shape[:1] == b"{" else key
    if b"numbers" in shape:
        slash = "\\" * (1 + (b"error" in shape))
        written = "".join(f"{slash}u{ord(one):04x}" for one in key)
    body = shape % written.encode()
    engine.then(Reply(body, status=401))
    status, said = await send(guarded, "POST", CHAT, GOOD, authorization=f"Bearer {key}", x_api_key=AGENT)
    assert status == 401
    assert json.loads(said)["error"]["message"]
    assert guarded.failed[-1].reason == "refused"
    assert key[:9].encode() not in guarded.raw_records() + guarded.metrics.exposition()
    assert "".join(f"u{ord(one):04x}" for one in key[:9]) not in guarded.failed[-1].message.replace("\\", "")


PLANTED = "sk-Planted/7f3a9c"
ESCAPED = "".join(f"\\u{ord(one):04x}" for one in PLANTED)


def wrong(key: str) -> bytes:
    """An error in the middle of a stream."""
    return b'data: {"error": {"message": "wrong key: %b", "code": 401}}\n\n' % key.encode()


BEGUN = chunk("hel", [1], asked=ASKS)
REPEATED = {
    "an error event": (BEGUN, wrong(PLANTED)),
    "with its scheme": (BEGUN, wrong(f"Bearer {PLANTED}")),
    "in two pieces": (BEGUN, wrong(PLANTED)[:50], wrong(PLANTED)[50:]),
    "escaped": (BEGUN, wrong(ESCAPED), wrong(PLANTED.replace("/", "\\/"))),
    "as a name": (BEGUN, b'data: {"%b": 1, "error": 2}\n\n' % PLANTED.encode()),
    "in the text of two chunks": (BEGUN, chunk(PLANTED[:8], [2], asked=ASKS), chunk(PLANTED[8:], [3], asked=ASKS)),
    "as a finish reason": (chunk("hel", [1], asked=ASKS, finish_reason=f"key {PLANTED}"), b"data: [DONE]\n\n"),
    "and it hangs up": (wrong(PLANTED),),
    "a whole reply": (),
}


@pytest.mark.parametrize("name", REPEATED)
async def test_a_key_that_is_repeated_in_a_reply_is_not_stored(
    guarded: House, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """In an error after the first tokens, too: the client gets what the provider said, the log has it without the key."""
    engine: ScriptedEngine = guarded.engine  # type: ignore[attr-defined]  # an attribute of the test's own
    pieces, before = REPEATED[name], len(guarded.captured) + len(guarded.failed)
    body = written(ASKS)[0] | {"warning": [f"soon {PLANTED} ends"]}
    engine.then(Reply(pieces=pieces) if pieces else Reply(body))
    streamed = GOOD[:-1] + b', "stream": true}' if pieces else GOOD
    heard = b""
    with contextlib.suppress(aiohttp.ClientPayloadError):
        _, heard = await send(guarded, "POST", CHAT, streamed, authorization=f"Bearer {PLANTED}", x_api_key=AGENT)
    assert PLANTED.encode() in heard or name != "a whole reply"
    await poll(lambda: len(guarded.captured) + len(guarded.failed) > before)
    stored = guarded.raw_records() + guarded.metrics.exposition() + "".join(capfd.readouterr()).encode()
    assert PLANTED[8:].encode() not in stored
    assert PLANTED[8:].replace("/", "\\/").encode() not in stored
    assert ESCAPED.encode() not in stored
    if pieces[:1] == (BEGUN,):
        assert b"[credential]" in guarded.captured[-1].response_body


@pytest.mark.parametrize(("word", "fixed"), [("placeholder", False), ("EMPTY", True)])
async def test_a_word_that_is_no_key_stays(engine: ScriptedEngine, word: str, fixed: bool) -> None:
    """What SDKs send where no key is needed reaches no worker, or is too short for a key, and may be said in a reply."""
    with House(upstreams=engine.url if fixed else "") as house:
        house.worker(engine.url)
        engine.then(completion(ASKS, text=word))
        await send(house, "POST", CHAT, GOOD, authorization=f"Bearer {word}")
        assert word.encode() in house.captured[0].response_body


@pytest.mark.parametrize(
    ("key", "status"), [(b"", b"401"), (b"x-api-key: %b\r\n" % AGENT.encode(), b"404")], ids=["without", "with"]
)
async def test_an_upgrade_goes_around_no_key(guarded: House, key: bytes, status: bytes) -> None:
    """A request for a WebSocket is a request like any other."""
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eDEyMzQ1Njc4OTAxMjM0NQ==\r\n"
    heard = await say(
        guarded.url, b"GET /t HTTP/1.1\r\nhost: localhost\r\n" + key + upgrade + b"\r\n", timeout_s=2, end=True
    )
    assert heard[9:12] == status, heard


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "gateway.internal"])
def test_outside_addresses_need_keys(host: str) -> None:
    """Without keys the gateway listens on loopback only."""
    with pytest.raises(ValidationError, match="CLAW_GATEWAY_API_KEYS"):
        GatewaySettings(host=host)
    assert GatewaySettings(host=host, api_keys=AGENT_ENTRY).host == host  # type: ignore[arg-type]  # fields by name, of any type


FOREIGN = [
    ({"origin": "https://evil.example"}, "foreign_origin"),
    ({"origin": "null"}, "foreign_origin"),
    ({"origin": "http://localhost.evil.example"}, "foreign_origin"),
    ({"origin": "http://[::1"}, "foreign_origin"),
    ({"host": "evil.example"}, "foreign_host"),
    ({"host": "127.0.0.1.evil.example:8000"}, "foreign_host"),
    ({"host": "10.1.2.3"}, "foreign_host"),
]


@pytest.mark.parametrize(("headers", "code"), FOREIGN)
@pytest.mark.parametrize(("method", "path"), [("POST", CHAT), ("POST", "/t/g/rewards"), ("GET", "/metrics")])
async def test_without_keys_no_web_page_gets_in(
    hardened: House, headers: dict[str, str], code: str, method: str, path: str
) -> None:
    """A page from elsewhere, or one that made its name point here, reaches nothing through a browser of this machine."""
    before = len(hardened.raw_records())
    status, reply = await send(hardened, method, path, GOOD if method == "POST" else None, **headers)
    assert (status, json.loads(reply)["error"]["code"]) == (403, code)
    assert len(hardened.raw_records()) == before


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://localhost:3000"},
        {"origin": "http://[::1]:8000"},
        {"host": "localhost"},
        {"host": "LOCALHOST:80"},
        {"host": "claw.localhost:8000"},
        {"host": "[::1]:8000"},
        {"host": "127.9.9.9"},
    ],
)
async def test_without_keys_this_machine_gets_in(hardened: House, headers: dict[str, str]) -> None:
    """By whatever name it calls itself, and from its own pages."""
    assert (await send(hardened, "POST", CHAT, GOOD, **headers))[0] == 200


async def test_with_keys_a_page_with_a_key_gets_in(guarded: House) -> None:
    """Whoever has a key may be anywhere."""
    headers = {"origin": "https://dashboard.example", "host": "gateway.example", "x_api_key": AGENT}
    assert (await send(guarded, "POST", CHAT, GOOD, **headers))[0] == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    """A developer's machine starts as it is."""
    assert GatewaySettings(host=host).api_keys == ()


@pytest.mark.parametrize(
    "entry",
    [AGENT, "agent:123", f"root:{'0' * 64}", AGENT_ENTRY.upper()],
    ids=["a key", "short", "no role", "capitals"],
)
def test_a_bad_entry_is_refused_without_repeating_it(entry: str) -> None:
    """Whoever pastes the key itself into the settings does not find it in the log."""
    with pytest.raises(ValidationError) as refused:
        GatewaySettings(api_keys=entry)  # type: ignore[arg-type]  # fields by name, of any type
    assert entry not in str(refused.value.errors(include_url=False, include_input=False, include_context=False))


def test_settings_do_not_show_keys() -> None:
    """Not even as hashes."""
    assert OPERATOR_ENTRY not in repr(GatewaySettings(api_keys=OPERATOR_ENTRY))  # type: ignore[arg-type]  # fields by name, of any type

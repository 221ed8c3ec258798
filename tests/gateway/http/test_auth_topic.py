"""Keys that stand in the topic: who gets in from when to when, what a role may do, and that nothing of a key stays."""

import base64
import json
from collections.abc import Iterator
from hashlib import sha256

import aiohttp
import pytest

from claw_r1.eventlog.records import Outgoing, Record
from claw_r1.gateway.errors import Unauthorized
from claw_r1.gateway.http.auth import KeyRing
from claw_r1.schemas.api_keys import MAY, Role, new_key, parse_key
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import KeyRecorded
from claw_r1.schemas.topics import KEYS
from tests.gateway.engine import ScriptedEngine, stream
from tests.gateway.house import House
from tests.gateway.raw import CHAT, GOOD, send

ROLES: tuple[Role, ...] = ("agent", "annotator", "reader", "operator")
CONFIGURED, ENTRY = new_key("operator")


def record(key: str, value: bytes | None = b"", role: str = "agent", **fields: object) -> Record:
    """A record of the topic for this key. value: other bytes than the event's; None: a tombstone."""
    digest = sha256(key.encode()).hexdigest()
    event = KeyRecorded(envelope=envelope("test"), digest=digest, name="n", role=role, **fields)  # type: ignore[arg-type]  # fields by name, of any type
    bytes_ = Outgoing.of(KEYS, digest.encode(), event).value if value == b"" else value
    return Record("claw.keys", 0, 0, 0, digest.encode(), bytes_)


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + key.encode()), (b"host", b"localhost")]


@pytest.fixture(scope="module")
def keys() -> dict[Role, str]:
    """A key of each role."""
    return {role: new_key(role)[0] for role in ROLES}


@pytest.fixture(scope="module")
def guarded(keys: dict[Role, str]) -> Iterator[House]:
    """A gateway with a configured operator, and a key of each role in the topic."""
    with ScriptedEngine() as engine, House(upstreams=engine.url, api_keys=ENTRY) as house:
        house.engine = engine  # type: ignore[attr-defined]  # an attribute of the test's own
        for role, key in keys.items():
            house.keys.apply(record(key, role=role))
        yield house


REQUESTS = [
    ("POST", CHAT, GOOD, "call"),
    ("POST", "/groups", b"{}", "live"),
    ("POST", "/t/g/v1/complete_trajectory", b'{"calls": 0}', "live"),
    ("POST", "/t/g/rewards", b'{"value": 1.0}', "judge"),
    ("POST", "/t/g/feedback", b'{"thumb": "up"}', "speak"),
    ("POST", "/groups/g/preferences", b'{"chosen": "t", "rejected": "u"}', "speak"),
    ("GET", "/v1/models", None, "read"),
    ("GET", "/t/g/v1/calls", None, "read"),
    ("GET", "/registry/subjects", None, "read"),
    ("POST", "/registry/compatibility/subjects/claw.weights-value/versions", b"{}", "read"),
    ("GET", "/metrics", None, "operate"),
    ("GET", "/metrics/", None, "operate"),
    ("GET", "/%6Detrics", None, "operate"),
    ("DELETE", "/groups", None, "live"),
]


@pytest.mark.parametrize(("method", "path", "body", "act"), REQUESTS)
@pytest.mark.parametrize("role", ROLES)
async def test_a_role_may_what_the_table_says(
    guarded: House, keys: dict[Role, str], role: Role, method: str, path: str, body: bytes | None, act: str
) -> None:
    """Who may not gets 403 with the names of those who may, and leaves nothing in the log."""
    before = len(guarded.raw_records())
    status, reply = await send(guarded, method, path, body, x_api_key=keys[role])
    if role in MAY[act]:  # type: ignore[index]  # the kind that this test makes has it
        assert status not in (401, 403), reply
    else:
        error = json.loads(reply)["error"]
        assert (status, error["code"]) == (403, "forbidden")
        assert " or ".join(MAY[act]) in error["message"]  # type: ignore[index]  # the kind that this test makes has it
        assert len(guarded.raw_records()) == before


async def test_a_revoked_key_ends_what_it_began_and_begins_nothing(guarded: House) -> None:
    """On one connection, in the middle of a stream: the stream ends whole, the next request is refused; so with an expired one."""
    engine: ScriptedEngine = guarded.engine  # type: ignore[attr-defined]  # an attribute of the test's own
    for fields, word in (({"revoked": True}, "revoked"), ({"expires_us": 1}, "expired")):
        key, _ = new_key("agent")
        guarded.keys.apply(record(key))
        engine.then(stream({"logprobs": True, "return_token_ids": True}, pace_s=0.05))
        async with aiohttp.ClientSession(guarded.url, headers={"x-api-key": key}) as session:
            async with session.post(CHAT, data=GOOD[:-1] + b', "stream": true}') as reply:
                assert reply.status == 200
                await reply.content.readuntil(b"\n\n")
                guarded.keys.apply(record(key, **fields))
                assert (await reply.read()).endswith(b"data: [DONE]\n\n")
            async with session.post(CHAT, data=GOOD) as reply:
                assert reply.status == 401
                assert word in (await reply.json())["error"]["message"]


def test_the_newest_record_counts_and_a_tombstone_removes() -> None:
    """Revoked, renewed, removed; what cannot be read changes nothing."""
    now, (key, _) = [100], new_key("agent")
    ring = KeyRing([parse_key(ENTRY)], lambda: now[0])

    def opens() -> bool:
        try:
            return ring.checked("/x", bearer(key))[0] is not None
        except Unauthorized:
            return False

    steps: list[tuple[Record, bool]] = [
        (record(key, expires_us=200), True),
        (record(key, b"\x00junk"), True),
        (Record("claw.keys", 0, 0, 0, b"\xff no hash", record(key, revoked=True).value), True),
        (record(key, revoked=True), False),
        (record(key), True),
        (record(key, None), False),
        (record(key, expires_us=200), True),
    ]
    for each, valid in steps:
        ring.apply(each)
        assert opens() is valid
    now[0] = 199
    assert opens()
    now[0] = 200
    assert not opens(), "a key is not valid any more at its very end"


def test_a_role_from_the_future_may_nothing() -> None:
    """A record of a role that this gateway does not know lets nobody do anything, not even what the older record allowed."""
    key, _ = new_key("agent")
    ring = KeyRing([parse_key(ENTRY)])
    ring.apply(record(key))
    ring.apply(record(key, role="admiral"))
    assert not any(ring.checked("/x", bearer(key))[0].role in roles for roles in MAY.values())  # type: ignore[union-attr]  # the kind that this test makes has it


async def test_without_configured_keys_a_key_says_who_calls_and_nobody_needs_one(engine: ScriptedEngine) -> None:
    """This machine stays open; a key that is sent counts with its role; one of ours that is not valid is refused, not ignored."""
    with House(upstreams=engine.url) as house:
        valid, ended, stranger = (new_key("reader")[0] for _ in range(3))
        house.keys.apply(record(valid, role="reader"))
        house.keys.apply(record(ended, revoked=True))
        assert (await send(house, "POST", CHAT, GOOD))[0] == 200
        assert (await send(house, "POST", CHAT, GOOD, authorization="Bearer unused"))[0] == 200
        assert (await send(house, "GET", "/v1/models", None, authorization=f"Bearer {valid}"))[0] == 200
        assert (await send(house, "POST", CHAT, GOOD, authorization=f"Bearer {valid}"))[0] == 403
        asked = len(engine.requests)
        for key in (ended, stranger):
            assert (await send(house, "POST", CHAT, GOOD, authorization=f"Bearer {key}"))[0] == 401
        assert len(engine.requests) == asked
        assert (await send(house, "GET", "/v1/models", None, host="gateway.example", x_api_key=valid))[0] == 200


async def test_basic_is_a_key_as_password(guarded: House, keys: dict[Role, str]) -> None:
    """Clients of registries speak nothing else; what is no base64, or not ours, is no key."""

    async def status(words: bytes) -> int:
        return (await send(guarded, "GET", "/registry/subjects", None, authorization=f"Basic {words.decode()}"))[0]

    key = keys["reader"].encode()
    assert await status(base64.b64encode(b"anybody:" + key)) == 200
    assert await status(base64.b64encode(b":" + key)) == 200
    assert await status(base64.b64encode(key)) == 401
    assert await status(b"~") == 401


async def test_no_key_of_the_topic_goes_anywhere(
    guarded: House, keys: dict[Role, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """However it comes, and where it is refused: no upstream, topic, metric, reply or log line has it; nor one of ours that we do not know."""
    engine: ScriptedEngine = guarded.engine  # type: ignore[attr-defined]  # an attribute of the test's own
    stranger, _ = new_key("agent")
    basic = base64.b64encode(f"u:{keys['agent']}".encode()).decode()
    replies = b""
    for headers in (
        {"authorization": f"Bearer {keys['agent']}"},
        {"authorization": f"Basic {basic}"},
        {"authorization": f"Bearer {stranger}", "x_api_key": keys["agent"]},
        {"authorization": f"Bearer {keys['reader']}"},
        {"authorization": f"Bearer {stranger}"},
    ):
        replies += (await send(guarded, "POST", CHAT, GOOD, **headers))[1]
    everything = replies + guarded.raw_records() + guarded.metrics.exposition() + str(engine.requests).encode()
    everything += "".join(capfd.readouterr()).encode()
    for secret in (*keys.values(), stranger, basic, CONFIGURED):
        assert secret.encode() not in everything
    assert not any("authorization" in request.headers for request in engine.requests[-3:])

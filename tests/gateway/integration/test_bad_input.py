"""Bad input and bad engines against the running process: nothing lost, no 500, no hang, the next good request is served."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import orjson
import pytest

from claw_r1.claw.local.kafka.node import LocalBroker
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.api_keys import new_key
from claw_r1.schemas.topics import CALLS
from tests.gateway.engine import Json, Reply, ScriptedEngine, chunk, completion, whole, written
from tests.gateway.house import House
from tests.gateway.processes import GatewayProcess
from tests.gateway.raw import BODIES, CHAT, GOOD, say, send
from tests.soak import SOAK

IN_A_ROW = 10_000 if SOAK else 2_000


@pytest.fixture(scope="module")
def patient() -> Iterator[tuple[House, ScriptedEngine]]:
    """A gateway with short deadlines, and the engine behind it."""
    with ScriptedEngine() as engine, House(upstream_timeout_s=0.5, resends_max=0, worker_wait_s=0.2) as house:
        house.worker(engine.url)
        yield house, engine


def changed(**fields: object) -> Reply:
    """A good reply with these fields of its choice (or of itself) replaced."""
    good, made = written({"logprobs": True, "return_token_ids": True})
    body: Json = {**good, **{name: value for name, value in fields.items() if name in good}}
    own = {name: value for name, value in fields.items() if name not in good}
    if own:
        body["choices"] = [{**body["choices"][0], **own}]
    return whole(body, made)


def odd_finish(raw: bytes) -> Reply:
    """A good reply whose finish reason stands there so."""
    good, made = written({})
    good["choices"][0]["finish_reason"] = "@"
    return whole(json.dumps(good).encode().replace(b'"@"', raw), made)


ENGINES: dict[str, tuple[Reply, int]] = {
    "500": (Reply({"error": "broke"}, status=500), 502),
    "503 for too long": (Reply({"error": "paused"}, status=503), 503),
    "302": (Reply(b"", status=302, headers={"location": "http://example.invalid"}), 502),
    "400": (Reply({"error": {"message": "context too long"}}, status=400), 400),
    "404 in HTML": (Reply(b"<html>", status=404), 404),
    "429": (Reply({"error": {"message": "slow down"}}, status=429, headers={"retry-after": "7"}), 429),
    "no answer in time": (Reply(hang=True), 504),
    "a reset": (Reply(reset=True), 502),
    "an empty body": (Reply(b""), 502),
    "half a JSON": (Reply(b'{"choices": ['), 502),
    "a list": (Reply(b"[]"), 502),
    "no choices": (changed(choices=[]), 502),
    "choices of nothing": (changed(choices=[None]), 502),
    "NaN": (changed(logprobs={"content": [{"token": "t", "logprob": float("nan")}]}), 200),
    "ids that are none": (changed(token_ids=["x", None, 1.5]), 200),
    "tokens that nobody handed over": (Reply(written({})[0]), 200),
    "no usage": (changed(usage=None), 200),
    "an id of another kind": (changed(id={"a": [1]}), 200),
    "a content of another kind": (changed(message=[1, 2]), 200),
    "nesting without end": (Reply(b'{"choices": [{"x": %b%b}]}' % (b"[" * 100_000, b"]" * 100_000)), 502),
    "nesting that a parser takes": (Reply(b'{"choices": [{"x": %b%b}]}' % (b"[" * 900, b"]" * 900)), 502),
    "a finish reason that is no text": (odd_finish(rb'"\ud800"'), 200),
    "a refusal that is no text": (Reply(b'{"error": {"message": %b%b}}' % (b"[" * 1000, b"]" * 1000), status=400), 400),
}


@pytest.mark.parametrize("name", ENGINES)
async def test_bad_engines(patient: tuple[House, ScriptedEngine], name: str) -> None:
    """Each has its status and one fact that says why it cannot be trained; the next call is served and trainable."""
    house, engine = patient
    reply, status = ENGINES[name]
    captured, failed = len(house.captured), len(house.failed)
    engine.default = lambda _: reply
    got, body = await send(house, "POST", CHAT, GOOD)
    assert got == status, body
    if status == 200:
        assert len(house.captured) == captured + 1
        newest = house.captured[-1]
        assert newest.integrity.complete is (name != "tokens that nobody handed over")
    else:
        assert len(house.failed) == failed + 1
        assert "error" in orjson.loads(body)
    engine.default = lambda received: completion(received.json)
    assert (await send(house, "POST", CHAT, GOOD))[0] == 200
    assert house.captured[-1].integrity.complete


TEXT = b'{"model": "tiny", "messages": [{"role": "user", "content": %b}]%b}'
PASS: dict[str, bytes] = {
    "NUL": TEXT % (b'"a\\u0000b"', b""),
    "an emoji": TEXT % ("\U0001f980".encode().join([b'"', b'"']), b""),
    "a surrogate pair": TEXT % (b'"\\ud83e\\udd80"', b""),
    "one key twice": TEXT % (b'"x"', b', "model": "tiny", "user": "a", "user": "b"'),
    "an unknown field": TEXT % (b'"x"', b', "x-unknown": {"deep": [1, {"er": null}]}'),
    "nested deeply": TEXT % (b'"x"', b', "logprobs": false, "x": %b%b' % (b"[" * 300, b"]" * 300)),
    "a float, and a flag that is off": TEXT % (b'"x"', b', "logprobs": null, "x": 0.30000000000000004'),
    "an integer beyond 64 bits, and a flag that is off": TEXT
    % (
        b'"x"',
        b', "logprobs": false, "metadata": 123456789012345678901234567890',
    ),
    "an integer beyond 64 bits in an unknown field": TEXT % (b'"x"', b', "metadata": 123456789012345678901234567890'),
    "3 MB": TEXT % (b'"' + b"x" * 3_000_000 + b'"', b""),
}


@pytest.mark.parametrize("name", PASS)
async def test_odd_but_good_requests_pass(patient: tuple[House, ScriptedEngine], name: str) -> None:
    """What is valid JSON reaches the engine as it was written, and the log."""
    house, engine = patient
    assert (await send(house, "POST", CHAT, PASS[name]))[0] == 200
    received = engine.requests[-1]
    assert received.body == PASS[name]


class Ground:
    """A gateway process with keys on a broker whose files can be read."""

    def __init__(
        self, folders: list[Path], log: LogSettings, process: GatewayProcess, engine: ScriptedEngine, key: str
    ) -> None:
        self.folders, self.log, self.process, self.engine, self.key = folders, log, process, engine, key


@pytest.fixture
def on_disk(
    local_broker: LocalBroker, local_log: LogSettings, engine: ScriptedEngine, tmp_path: Path
) -> Iterator[Ground]:
    """Its logs and spool lie in one folder, the broker's data in another."""
    key, entry = new_key("operator")
    environment = {"CLAW_GATEWAY_API_KEYS": entry, "CLAW_GATEWAY_ACCESS_LOG": "true", "CLAW_LOG_COMPRESSION": "none"}
    process = GatewayProcess(local_log, tmp_path, "--upstream", engine.url, **environment)
    yield Ground([tmp_path, local_broker.data_dir], local_log, process, engine, key)
    process.kill()


def _access_lines(ground: Ground) -> list[Json]:
    """Lines of the access log, each with these fields and no others: none that could hold a body, a query or a header."""
    lines: list[Json] = [json.loads(line) for line in ground.process.said.splitlines() if '"event": "request"' in line]
    fields = {"method", "path", "status", "ms", "reply_bytes", "call_id", "event", "level", "timestamp"}
    assert all(set(line) == fields and "?" not in line["path"] for line in lines), lines
    return lines


@pytest.mark.kafka
async def test_no_secret_is_written_anywhere(on_disk: Ground) -> None:
    """Keys, cookies, credentials in a query or in a URL are in no segment, log line, spool or metric; other things are."""
    plants = {name: f"planted-{name}-51d0" for name in ("bearer", "cookie", "other", "query", "userinfo")}
    headers = {
        "x-api-key": on_disk.key,
        "authorization": f"Bearer {plants['bearer']}",
        "cookie": f"session={plants['cookie']}",
        "api-key": plants["other"],
        "x-claw-agent": "harmless-agent-51d0",
    }
    query = f"?api_key={plants['query']}"
    async with aiohttp.ClientSession(on_disk.process.url, headers=headers) as session:
        for path, body, status in [
            (CHAT, GOOD, 200),
            ("/t/g/rewards", b'{"value": 1}', 200),
            ("/groups", b"{}", 201),
            (CHAT, b"{", 400),
            (f"/t{query}/x", b"{}", 404),
        ]:
            async with session.post(path + ("" if "?" in path else query), data=body) as reply:
                assert reply.status == status
        on_disk.engine.then(Reply({"error": {"message": "no"}}, status=400))
        async with session.post(CHAT + query, data=GOOD) as reply:
            assert reply.status == 400
        echo = f"wrong key: {plants['bearer']}"
        on_disk.engine.then(Reply({"error": {"message": echo}}, status=401), Reply(echo.encode(), status=401))
        for _ in range(2):
            async with session.post(CHAT, data=GOOD) as reply:
                assert reply.status == 401
        failing = b'data: {"error": {"message": "%b"}}\n\n' % echo.encode()
        asked = {"logprobs": True, "return_token_ids": True}
        on_disk.engine.then(Reply(pieces=(chunk("he", [1], asked=asked), failing[:40], failing[40:])))
        with contextlib.suppress(aiohttp.ClientPayloadError):
            async with session.post(CHAT, data=GOOD[:-1] + b', "stream": true}') as reply:
                assert echo in await reply.text()
        async with session.post(CHAT, data=GOOD, headers={"x-api-key": "wrong-" + plants["other"]}) as reply:
            assert reply.status == 401
        async with session.get("/metrics") as reply:
            metrics = await reply.read()
    absolute = f"GET http://u:{plants['userinfo']}@x/v1/models{query} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {on_disk.key}\r\n\r\n"
    await say(on_disk.process.url, absolute.encode(), end=True)
    upgrade = (
        b"GET /t HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    )
    upgrade += b"sec-websocket-key: eDEyMzQ1Njc4OTAxMjM0NQ==\r\n\r\n"
    assert (await say(on_disk.process.url, upgrade, end=True)).startswith(b"HTTP/1.1 401")
    on_disk.process.process.terminate()
    assert on_disk.process.stop() == 0
    files = [path for folder in on_disk.folders for path in folder.rglob("*") if path.is_file()]
    written = metrics + b"".join(path.read_bytes() for path in files)
    assert b"harmless-agent-51d0" in written, "the grep looks at the right files"
    assert ("POST", CHAT, 200) in [(line["method"], line["path"], line["status"]) for line in _access_lines(on_disk)]
    assert on_disk.key.encode() not in written
    assert [name for name, secret in plants.items() if secret.encode() in written] == []
    assert any(plants["bearer"] in str(request.headers) for request in on_disk.engine.requests)  # a provider's own key


@pytest.mark.kafka
@pytest.mark.soak
async def test_thousands_of_bad_requests_in_a_row(on_disk: Ground) -> None:
    """Thousands of malformed requests (ten thousand in `make soak`) on a few connections: each refused, then a good one is served."""
    bodies = [(path, body) for path, body in BODIES if len(body) < 1000]
    key = f"x-api-key: {on_disk.key}\r\n".encode()
    requests = [
        b"POST %b HTTP/1.1\r\nhost: localhost\r\n%bcontent-length: %d\r\n\r\n%b" % (path.encode(), key, len(body), body)
        for path, body in itertools.islice(itertools.cycle(bodies), IN_A_ROW)
    ]
    lanes = [requests[lane::8] for lane in range(8)]
    heard = await asyncio.gather(
        *(
            say(
                on_disk.process.url,
                b"".join(lane),
                b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
                timeout_s=120,
            )
            for lane in lanes
        )
    )
    statuses = b"".join(heard)
    assert statuses.count(b"HTTP/1.1 400") == IN_A_ROW
    assert statuses.count(b"HTTP/1.1 200") == len(lanes)
    async with aiohttp.ClientSession(headers={"x-api-key": on_disk.key}) as session:
        async with session.post(on_disk.process.url + CHAT, data=GOOD) as reply:
            assert reply.status == 200
        async with session.post(on_disk.process.url + CHAT, data=b" " * 20_000_000) as reply:
            assert reply.status == 413
        async with session.post(on_disk.process.url + CHAT, data=GOOD) as reply:
            assert reply.status == 200
    assert len(list(KafkaLog(on_disk.log).reader([CALLS]).read_to_end())) == 2
    assert "Traceback" not in on_disk.process.said

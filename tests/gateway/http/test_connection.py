"""What a client may cost: bytes, time and turns. Whoever goes beyond loses its own connection, and nobody else's."""

import asyncio
import contextlib
import gc
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from claw_r1.gateway.http.connection import WAITING_MAX, ClientConnection
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.schemas.events import RewardAssigned
from claw_r1.schemas.topics import REWARDS
from tests.gateway.engine import Reply, ScriptedEngine, completion
from tests.gateway.house import House
from tests.gateway.raw import CHAT, GOOD, say, send
from tests.patience import PATIENCE_S, until

POST = b"POST /t/g/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
LENGTH = b"content-length: %d\r\n" % len(GOOD)
WHOLE = POST + LENGTH + b"\r\n" + GOOD
READ_BYTES = 256 << 10
"""What an event loop takes from a socket at once."""
QUICK = {"headers_timeout_s": 0.3, "body_timeout_s": 0.3, "write_timeout_s": 0.3}
NARROW = {"headers_bytes_max": 4096}


@pytest.fixture(scope="module")
def hasty() -> Iterator[House]:
    """A gateway with short deadlines that lives through this module. On a busy machine an honest client misses them, too."""
    with ScriptedEngine() as engine, House(**QUICK) as house:
        house.worker(engine.url)
        yield house


@pytest.fixture(scope="module")
def strict() -> Iterator[House]:
    """A gateway that takes few bytes of headers, with time for them, that lives through this module."""
    with ScriptedEngine() as engine, House(**NARROW) as house:
        house.worker(engine.url)
        yield house


def statuses(heard: bytes) -> list[int]:
    """Of all replies in these bytes."""
    return [int(part[:3]) for part in heard.split(b"HTTP/1.1 ")[1:]]


REFUSED: dict[str, tuple[bytes, int]] = {
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "no version": (b"GET\r\n\r\n", 400),
    "HTTP/9": (b"GET /livez HTTP/9.9\r\nhost: localhost\r\n\r\n", 400),
    "a path that is no ASCII": (b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
    "a length below zero": (POST + b"content-length: -5\r\n\r\n", 400),
    "a length that is no number": (POST + b"content-length: 5x\r\n\r\nhello", 400),
    "an enormous length": (POST + b"content-length: 99999999999999999999999\r\n\r\n", 400),
    "two lengths": (POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!", 400),
    "one length twice": (POST + LENGTH + LENGTH + b"\r\n" + GOOD, 400),
    "length and chunks": (POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunks and length": (POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", 400),
    "a length after a bare line feed": (POST + b"content-length: 5\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "an unknown coding after chunks": (POST + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
    "an unknown coding": (POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    "a space before the colon": (POST + b"content-length : 5\r\n\r\nhello", 400),
    "a folded header": (POST + LENGTH + b"x-claw-tags: a\r\n b: c\r\n\r\n" + GOOD, 400),
    "a folded transfer-encoding": (POST + LENGTH + b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400),
    "NUL in a header": (POST + LENGTH + b"x-claw-agent: a\x00b\r\n\r\n" + GOOD, 400),
    "a carriage return in a header": (POST + LENGTH + b"x-claw-agent: a\rx: b\r\n\r\n" + GOOD, 400),
    "a chunk of no length": (POST + b"transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n", 400),
    "one large header": (POST + LENGTH + b"x-long: " + b"a" * 5000 + b"\r\n\r\n" + GOOD, 431),
    "many headers": (POST + LENGTH + b"x: y\r\n" * 2000 + b"\r\n" + GOOD, 431),
    "a header without end": (POST + b"x-long: " + b"a" * 500_000, 431),
    "a path without end": (b"GET /" + b"a" * 500_000, 431),
    "a chunk extension without end": (POST + b"transfer-encoding: chunked\r\n\r\n5;" + b"a" * 500_000, 431),
    "trailers without end": (POST + b"transfer-encoding: chunked\r\n\r\n0\r\nx: " + b"a" * 500_000, 431),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_clear_request_is_refused(strict: House, name: str) -> None:
    """Smuggling, folding and endless parts get one refusal and a closed connection; nothing reaches an engine or the log."""
    raw, status = REFUSED[name]
    before = len(strict.raw_records())
    heard = await say(strict.url, raw + WHOLE, timeout_s=5)
    assert statuses(heard) == [status], heard
    assert set(json.loads(heard.partition(b"\r\n\r\n")[2])["error"]) == {"message", "type", "param", "code"}
    assert len(strict.raw_records()) == before
    assert (await send(strict, "POST", CHAT, GOOD))[0] == 200


LINE = {"event", "method", "path", "status", "ms", "reply_bytes", "call_id"}


@pytest.mark.parametrize(
    ("raw", "method", "path", "status"),
    [
        (POST + b"content-length: -5\r\n\r\n", None, "", 400),
        (b"GET /livez?key=planted HTTP/9.9\r\nhost: localhost\r\n\r\n", None, "", 400),
        (POST.replace(b"ions ", b"ions?key=planted ") + b"content-length: 500\r\n\r\n{", "POST", CHAT, 408),
        (b"POST /t/g/rewards HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n{", "POST", "/t/g/rewards", 408),
        (POST + b"x: y\r\n" * 2000 + b"\r\n", "POST", CHAT, 431),
        (b"GET /" + b"a" * 500_000, None, "", 431),
        (POST + b"connection: close\r\n" + LENGTH + b"\r\n" + GOOD, "POST", CHAT, 200),
    ],
)
async def test_what_the_connection_refuses_is_counted_and_logged(
    raw: bytes, method: str | None, path: str, status: int
) -> None:
    """One line and one count for each request, whoever refused it; no query, no body."""
    with ScriptedEngine() as engine, House(access_log=True, **QUICK, **NARROW) as house, capture_logs() as lines:
        house.worker(engine.url)
        assert statuses(await say(house.url, raw, timeout_s=2))[0] == status
        await asyncio.to_thread(until, lambda: [line for line in lines if line["event"] == "request"])
        (line,) = [line for line in lines if line["event"] == "request"]
        counted = [
            row for row in house.metrics.exposition().decode().splitlines() if row.startswith("claw_gateway_requests_t")
        ]
    assert {*line, "log_level"} == {*LINE, "log_level"}
    assert (line["method"], line["path"], line["status"]) == (method, path, status)
    assert line["reply_bytes"] > 0
    assert "planted" not in str(line)
    assert [row.endswith(f'status="{status}"}} 1.0') for row in counted] == [True]


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"", b""),
        (b"\r\n\r\n", b"408"),
        (b"POST /t/g/v1/chat", b"408"),
        (POST, b"408"),
        (POST + b"content-length: 500\r\n\r\n{", b"408"),
        (POST + b"transfer-encoding: chunked\r\n\r\n5\r\nhe", b"408"),
    ],
)
@pytest.mark.parametrize("drip", [b"", b"a"])
async def test_slow_clients_are_cut_off(hasty: House, first: bytes, said: bytes, drip: bytes) -> None:
    """Headers and bodies have a deadline that dripping bytes do not push; meanwhile others are served."""
    slow = asyncio.ensure_future(say(hasty.url, first, *([drip] * 12 if drip and first.strip() else []), pause_s=0.1))
    assert (await send(hasty, "POST", CHAT, GOOD))[0] == 200
    heard = await asyncio.wait_for(slow, 5)
    assert heard[9:12] == said or (not said and not heard)


async def test_line_breaks_between_requests_hold_no_connection(hasty: House) -> None:
    """After a reply, bytes that start no request are on the clock, too."""
    heard = await say(hasty.url, WHOLE, b"\r\n", pause_s=0.1, timeout_s=5)
    assert statuses(heard)[0] == 200


CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
LARGE_CHUNK = b"7d0\r\n%b\r\n" % (b"a" * 2000)
SMALL = {"body_bytes_max": 1000, "control_bytes_max": 1000}


@pytest.mark.parametrize(
    ("asks", "status"),
    [
        ((POST + CHUNKED + LARGE_CHUNK,), 413),
        ((b"POST /t/g/v1/rewards HTTP/1.1\r\nhost: localhost\r\n" + CHUNKED + LARGE_CHUNK,), 413),
        ((POST + CHUNKED + LARGE_CHUNK, b"zz\r\n"), 413),
        ((WHOLE, b"\r\n"), 200),
    ],
)
async def test_one_request_has_one_reply(engine: ScriptedEngine, asks: tuple[bytes, ...], status: int) -> None:
    """What stalls or breaks after its reply is closed without a word, which would pass for the reply to the next request."""
    with House(**QUICK, **SMALL) as house:
        house.worker(engine.url)
        assert statuses(await say(house.url, *asks, pause_s=0.1)) == [status]


# More of them than the parser gets at once: what comes with a head or an end is not counted.
EXTENSION = b"1;%b\r\nx\r\n" % (b"a" * 500)
BIT_BY_BIT = {
    "extensions, a byte of body after each": ([EXTENSION] * 100, 431),
    "the same all at once": ([EXTENSION * 100], 431),
    "zeros before the lengths": ([b"%b1\r\nx\r\n" % (b"0" * 14)] * 40, 400),
}


@pytest.mark.parametrize("path", [b"/t/g/v1/chat/completions", b"/t/g/rewards"])
@pytest.mark.parametrize("name", BIT_BY_BIT)
async def test_framing_has_its_limit_however_it_comes(strict: House, name: str, path: bytes) -> None:
    """What frames a body counts for the whole request, be there body between its pieces; what every chunk needs is free."""
    pieces, status = BIT_BY_BIT[name]
    head = b"POST %b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" % path + CHUNKED
    asks = (head, *pieces, b"0\r\n\r\n")
    assert statuses(await say(strict.url, *asks, pause_s=0.002)) == [status]
    assert statuses(await say(strict.url, b"".join(asks))) == [status]  # as one packet, or a busy server, has it


@pytest.mark.parametrize("size", [1, 7])
async def test_a_body_in_small_chunks_is_a_body(house: House, size: int) -> None:
    """As many as there are bytes: their framing is more than the body, and no attack."""
    body = GOOD[:-1] + b', "x": "' + b"a" * 20_000 + b'"}'
    chunks = [b"%x\r\n%b\r\n" % (size, body[at : at + size]) for at in range(0, len(body) - size, size)]
    rest = body[len(chunks) * size :]
    whole = POST + b"connection: close\r\n" + CHUNKED + b"".join(chunks) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest), rest)
    assert statuses(await say(house.url, whole)) == [200]


async def test_trailers_are_no_headers(house: House) -> None:
    """What comes after the body is read by nobody: it was not there when keys and limits were looked at."""
    framing = b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(GOOD), GOOD)
    planted = b"x-claw-agent: planted\r\nx-claw-idempotency-key: planted\r\n\r\n"
    assert statuses(await say(house.url, POST + framing + planted)) == [200]
    (call,) = house.captured
    assert (call.agent, call.idempotency_key) == (None, None)


UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"


@pytest.mark.parametrize("times", [1, 2000])
async def test_an_offer_to_upgrade_is_ignored(house: House, times: int) -> None:
    """A request without a body that offers another protocol gets its reply over HTTP/1.1, and so does what follows."""
    offer = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n" + UPGRADE + b"\r\n"
    last = WHOLE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    assert statuses(await say(house.url, offer * times + last)) == [200] * (times + 1)


@pytest.mark.parametrize("pause_s", [0.0, 0.1])
async def test_the_body_of_an_upgrade_is_no_request(house: House, pause_s: float) -> None:
    """A body that comes with such an offer is not read for a request: whatever stands before us saw none there."""
    head = POST + UPGRADE + b"content-length: %d\r\n\r\n" % len(WHOLE)
    heard = await say(house.url, head, WHOLE, pause_s=pause_s)
    assert statuses(heard) == [400]
    assert json.loads(heard.partition(b"\r\n\r\n")[2])["error"]["code"] == "upgrade_with_body"
    assert not house.captured


@pytest.mark.parametrize("end", [b"x: y\r\n" * 2000, UPGRADE])
async def test_nothing_is_begun_behind_a_refusal(strict: House, end: bytes) -> None:
    """What stands behind a refused request in the same packet is neither taken for a part of an earlier one nor answered."""
    reward = b'POST /t/g/v1/rewards HTTP/1.1\r\nhost: localhost\r\ncontent-length: 12\r\n\r\n{"value": 1}'
    for hidden in (GOOD, WHOLE, reward):
        before = len(strict.captured)
        refused = POST + b"content-length: %d\r\n" % len(hidden) + end + b"\r\n" + hidden
        heard = await say(strict.url, WHOLE, refused + hidden, after=b"}")
        assert statuses(heard)[:1] == [200]
        assert len(statuses(heard)) == 2
        await asyncio.to_thread(until, lambda: not strict.connections and not strict.tasks)
        assert len(strict.captured) == before + 1
        assert (strict.events(RewardAssigned, REWARDS), held(strict)) == ([], 0)


async def test_a_stream_to_a_client_of_http_1_0(house: House) -> None:
    """HTTP/1.0 knows no chunks: its stream ends with its connection, and holds nothing but events."""
    body = b'{"messages": [], "stream": true}'
    request = b"POST /t/g/v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    head, _, events = (await say(house.url, request)).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert {event[:6] for event in events.split(b"\n\n")} == {b"data: ", b""}
    assert events.endswith(b"data: [DONE]\n\n")


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    """A reply that nobody takes is dropped after its deadline, and its connection with it."""
    text = "x" * 20_000_000
    with ScriptedEngine() as engine, House(**QUICK) as house:
        house.worker(engine.url)
        engine.default = lambda received: completion(received.json, text=text)
        host, port = house.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(WHOLE)
        await asyncio.to_thread(until, lambda: engine.requests)
        await asyncio.to_thread(until, lambda: not house.connections, 30)
        got = 0
        try:
            while piece := await asyncio.wait_for(reader.read(1 << 20), 5):
                got += len(piece)
        except ConnectionError:
            pass
        assert got < len(text)
        writer.close()


async def test_a_client_that_reads_slowly_gets_everything() -> None:
    """A reply that takes many write deadlines to read is whole, as long as some of it is read within each."""
    text, deadline_s = "x" * 12_000_000, 1.0  # more than a busy core keeps a client waiting
    with ScriptedEngine() as engine, House(write_timeout_s=deadline_s) as house:
        house.worker(engine.url)
        engine.default = lambda received: completion(received.json, text=text)
        host, port = house.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(WHOLE)
        started, got = time.monotonic(), 0
        while got < len(text):
            piece = await asyncio.wait_for(reader.read(300_000), 10)
            assert piece, f"cut off after {got} bytes and {time.monotonic() - started:.1f} s"
            got += len(piece)
            await asyncio.sleep(0.06)
        assert time.monotonic() - started > 2 * deadline_s
        writer.close()


async def test_pipelined_requests_are_answered_in_order(strict: House) -> None:
    """Several requests in one packet are several requests, answered one after the other."""
    heard = await say(strict.url, WHOLE * 5 + b"GET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert statuses(heard) == [200] * 5 + [404]


async def test_a_broken_request_ends_no_reply_before_it(house: House, engine: ScriptedEngine) -> None:
    """What is refused behind a call under way closes the connection; its refusal never stands in, or for, that reply."""
    asks = b'{"messages": [], "stream": true}'
    streamed = POST + b"content-length: %d\r\n\r\n%b" % (len(asks), asks)
    for broken in (b"GARBAGE\r\n\r\n", POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n"):
        engine.then(Reply(pieces=(b"data: {}\n\n",), hang=True), Reply(hang=True))
        assert statuses(await say(house.url, streamed, broken, pause_s=0.2)) == [200]
        assert statuses(await say(house.url, WHOLE, broken, pause_s=0.2)) == []


async def test_a_client_far_ahead_of_its_replies_is_not_read(strict: House) -> None:
    """However many requests a client sends at once, no more wait than one read from its socket brought."""
    asks = WHOLE * 20_000
    reader, writer = await asyncio.open_connection(*strict.url.removeprefix("http://").split(":"))
    writer.write(asks)
    waiting = 0
    for _ in range(50):
        await reader.readuntil(b"HTTP/1.1 200")
        waiting = max(waiting, strict.waiting)
    writer.transport.abort()
    assert WAITING_MAX < waiting < 2 * READ_BYTES // len(WHOLE)


async def test_a_client_that_reads_no_replies_is_not_read(house: House) -> None:
    """Whoever sends requests and leaves their replies unread fills no memory: not even with requests that are refused."""
    bad = (POST + b"content-length: 1\r\n\r\n{") * 20_000
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", int(house.url.rpartition(":")[2])))
        client.settimeout(3.0)
        with contextlib.suppress(TimeoutError):
            client.sendall(bad)
        await asyncio.to_thread(until, lambda: house.unsent_bytes, 60)
        assert await asyncio.to_thread(settled, lambda: house.unsent_bytes) < len(bad)
    await asyncio.to_thread(until, lambda: not house.connections)


def settled(count: Callable[[], int]) -> int:
    """What is the same at two looks."""
    last = -1
    while last != (last := count()):
        time.sleep(0.5)
    return last


async def test_a_refusal_waits_for_its_turn(engine: ScriptedEngine) -> None:
    """A request that is refused before its body is read is answered after those before it on its connection."""
    large = POST + b"content-length: 99999999\r\nconnection: close\r\n\r\n"
    with House() as house:
        house.worker(engine.url)
        assert statuses(await say(house.url, WHOLE + WHOLE + large)) == [200, 200, 413]


async def test_a_client_that_leaves_takes_its_waiting_requests_along(engine: ScriptedEngine) -> None:
    """The call under way is cancelled, the one behind it never begins, and nothing of them stays in flight."""
    with House() as house:
        house.worker(engine.url)
        engine.then(Reply(hang=True))
        _, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"))
        writer.write(WHOLE * 2)
        await asyncio.to_thread(until, lambda: engine.requests)
        writer.transport.abort()
        assert await asyncio.to_thread(engine.aborted.wait, 5)
        await asyncio.to_thread(until, lambda: house.failed)
        assert [event.reason for event in house.failed] == ["client_disconnected"]
        assert (len(engine.requests), house.connections) == (1, 0)
        assert b"claw_gateway_in_flight 0.0" in house.metrics.exposition()


async def test_a_reset_connection_leaves_nothing(house: House) -> None:
    """Neither a timer nor anything else keeps the connection of a client that reset it after its reply."""
    for _ in range(20):
        reader, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"))
        writer.write(WHOLE)
        await reader.readuntil(b"}]")
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    await asyncio.to_thread(until, lambda: not house.connections)
    await asyncio.to_thread(until, lambda: gc.collect() >= 0 and connections_of(house) == 0, 4)


def connections_of(house: House) -> int:
    """Connections of this gateway that still exist."""
    return sum(issubclass(type(one), ClientConnection) and one.door is house.door for one in gc.get_objects())


async def test_other_methods_on_the_path_of_calls(strict: House) -> None:
    """Only POST is a model call; a HEAD gets no body that would pass for the next reply."""
    path = b" /t/g/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    heard = await say(strict.url, b"HEAD" + path + b"\r\n", b"GET" + path + b"connection: close\r\n\r\n", pause_s=0.1)
    assert statuses(heard) == [405, 405]
    assert heard.count(b'"error"') == 1


async def test_connections_have_a_limit(engine: ScriptedEngine) -> None:
    """One connection more than the limit is told so; when one leaves, there is room again."""
    with House(connections_max=2) as house:
        house.worker(engine.url)
        host, port = house.url.removeprefix("http://").split(":")
        held = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        await asyncio.to_thread(until, lambda: house.connections == 2)
        heard = await say(house.url)
        assert statuses(heard) == [503]
        assert json.loads(heard.partition(b"\r\n\r\n")[2])["error"]["code"] == "overloaded"
        for _, writer in held:
            writer.close()
        await asyncio.to_thread(until, lambda: not house.connections)
        assert (await send(house, "POST", CHAT, GOOD))[0] == 200


async def test_expect_100_continue(strict: House) -> None:
    """A client that asks before it sends its body is told to go on."""
    head = POST + LENGTH + b"expect: 100-continue\r\nconnection: close\r\n\r\n"
    assert statuses(await say(strict.url, head, GOOD, pause_s=0.05)) == [100, 200]


async def test_who_is_told_not_to_go_on_is_not_listened_to(strict: House) -> None:
    """A client that asked before sending its body, and was refused, may send it or not: its connection ends."""
    head = POST + b"content-length: 99999999\r\nexpect: 100-continue\r\n\r\n"
    heard = await say(strict.url, head, WHOLE, pause_s=0.05)
    assert statuses(heard) == [413]
    assert b"\r\nconnection: close\r\n" in heard


async def test_calls_in_flight_have_a_limit(engine: ScriptedEngine) -> None:
    """One call more than the limit is a 503 with Retry-After; once a call ends, the next one is served."""
    with House(calls_max=2) as house:
        house.worker(engine.url)
        engine.default = lambda received: completion(received.json)
        may_end = threading.Event()
        held = [lambda received: replace(completion(received.json), moment=may_end)] * 2
        engine.script.extend(held)
        running = [asyncio.ensure_future(send(house, "POST", CHAT, GOOD)) for _ in range(2)]
        await asyncio.to_thread(until, lambda: len(engine.requests) == 2)
        status, body = await send(house, "POST", CHAT, GOOD)
        assert (status, json.loads(body)["error"]["code"]) == (503, "overloaded")
        may_end.set()
        assert [status for status, _ in await asyncio.gather(*running)] == [200, 200]
        assert (await send(house, "POST", CHAT, GOOD))[0] == 200


LARGE = b'{"messages": [], "user": "%b"}' % (b"x" * 90_000)
ROOM = {"body_bytes_max": 100_000, "held_bytes_max": 200_000}


def asking(body: bytes, more: bytes = b"connection: close\r\n") -> bytes:
    """A whole request with this body."""
    return POST + more + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def chunks(body: bytes) -> bytes:
    """The same, its length not said."""
    return POST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


async def test_the_bytes_of_all_calls_have_a_limit(engine: ScriptedEngine) -> None:
    """A request that finds no room is a 503 with Retry-After, as soon as that is known; a small one, or a later one, is served."""
    with House(**ROOM) as house:
        house.worker(engine.url)
        may_end = threading.Event()
        engine.then(*[replace(completion({}), moment=may_end)] * 2)
        running = [asyncio.ensure_future(say(house.url, asking(LARGE), timeout_s=PATIENCE_S)) for _ in range(2)]
        await asyncio.to_thread(until, lambda: len(engine.requests) == 2)
        assert held(house) == 2 * len(LARGE)
        for asks in (asking(LARGE).partition(b"{")[0], chunks(LARGE)):
            heard = await say(house.url, asks)
            assert statuses(heard) == [503]
            assert b"\r\nretry-after: 1\r\n" in heard
            assert b"\r\nx-claw-overhead-ms: " in heard
            assert json.loads(heard.partition(b"\r\n\r\n")[2])["error"]["code"] == "overloaded"
        assert statuses(await say(house.url, asking(GOOD))) == [200]
        may_end.set()
        assert [statuses(heard) for heard in await asyncio.gather(*running)] == [[200], [200]]
        assert held(house) == 0
        assert statuses(await say(house.url, chunks(LARGE))) == [200]


async def test_a_reply_that_nobody_reads_takes_room(engine: ScriptedEngine) -> None:
    """It counts until its client has it, and keeps other requests out meanwhile."""
    text = "x" * 20_000_000
    with House(**ROOM) as house:
        house.worker(engine.url)
        engine.then(completion({}, text=text))
        reader, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"), limit=1024)
        writer.write(asking(GOOD))
        await asyncio.to_thread(until, lambda: house.captured)
        assert statuses(await say(house.url, asking(LARGE))) == [503]
        assert len(await reader.read(-1)) > len(text)
        await asyncio.to_thread(until, lambda: held(house) == 0)
        assert statuses(await say(house.url, asking(LARGE))) == [200]
        writer.close()


async def test_room_is_given_back_however_a_call_ends(engine: ScriptedEngine) -> None:
    """Refused, broken off, abandoned at any point, repeated: nothing stays."""
    streamed = b'{"messages": [], "stream": true, "user": "%b"}' % (b"x" * 90_000)
    hung = Reply(pieces=(b"data: {}\n\n",), hang=True)
    keyed = asking(LARGE, b"connection: close\r\nx-claw-idempotency-key: k\r\n")
    ways: dict[str, tuple[bytes, list[Reply]]] = {
        "over its own limit": (asking(LARGE * 2), []),
        "over it, length unsaid": (chunks(LARGE * 2), []),
        "no JSON": (asking(b"x" * 90_000), []),
        "left within its body": (asking(LARGE)[:-10], []),
        "left behind others": (asking(LARGE, b"") + asking(LARGE, b"") + asking(LARGE)[:-10], [Reply(hang=True)]),
        "left in the engine": (asking(LARGE), [Reply(hang=True)]),
        "left within a stream": (asking(streamed), [hung]),
        "a stream": (asking(streamed), []),
        "a broken stream": (asking(streamed), [replace(hung, hang=False, reset=True)]),
        "a broken engine": (asking(LARGE), [Reply(reset=True)] * 9),
        "captured": (keyed, []),
        "repeated": (keyed, []),
    }
    with House(**ROOM, resends_max=0) as house:
        house.worker(engine.url)
        for name, (asks, replies) in ways.items():
            engine.script.clear()
            engine.then(*replies)
            with contextlib.suppress(TimeoutError):
                await say(house.url, asks, timeout_s=0.3 if "left" in name else 5)
            await asyncio.to_thread(until, lambda: not house.connections)
            await poll_for_none(house, name)


async def poll_for_none(house: House, name: str) -> None:
    """A call that was left ends a little later."""
    for _ in range(200):
        if not held(house):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{name}: {held(house)} bytes stay")


def held(house: House) -> int:
    """What the metric says."""
    (line,) = [row for row in house.metrics.exposition().splitlines() if row.startswith(b"claw_gateway_held_bytes ")]
    return int(float(line.split()[1]))


async def test_a_body_in_many_pieces_is_the_body(house: House, engine: ScriptedEngine) -> None:
    """However a client cuts its body, the engine gets it whole."""
    said = b'{"messages": [], "user": "0123456789"}'
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in said)
    asks = POST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"
    assert statuses(await say(house.url, asks[:200], asks[200:], pause_s=0.05)) == [200]
    assert engine.requests[0].json["user"] == "0123456789"


def test_room_for_the_largest_request() -> None:
    """Settings under which no large request could ever be served are refused."""
    with pytest.raises(ValueError, match="held_bytes_max"):
        GatewaySettings(held_bytes_max=10, body_bytes_max=11)


@pytest.mark.parametrize("asks", [POST + b"content-length: 1001\r\n\r\n", POST + CHUNKED + LARGE_CHUNK])
async def test_a_refusal_before_the_body_tells_its_overhead(asks: bytes) -> None:
    """Every reply to a model call says how long it was here."""
    with House(**SMALL) as house:
        heard = await say(house.url, asks.replace(b"host:", b"connection: close\r\nhost:"))
    assert statuses(heard) == [413]
    assert b"\r\nx-claw-overhead-ms: " in heard

"""The client for engines against servers that misbehave in every way we know."""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from claw_r1.gateway.errors import GatewayError, InvalidRequest, UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from claw_r1.gateway.upstream.http_upstream import HttpUpstream, UpstreamReply, whole
from tests.gateway.raw import RawServer, request
from tests.patience import PATIENCE_S, until_async

OK = b"HTTP/1.1 200 OK\r\n"
GOOD = OK + b"content-length: 5\r\nx-claw-tokens: 3\r\nretry-after: 3\r\n\r\nhello"
BROKEN = UpstreamBroken


@pytest.fixture
async def upstream() -> AsyncIterator[HttpUpstream]:
    """A client with short deadlines and a small limit."""
    async with HttpUpstream(connect_timeout_s=1.0, timeout_s=1.0, reply_bytes_max=100_000) as client:
        yield client


async def post(upstream: HttpUpstream, url: str, body: bytes, headers: dict[str, str]) -> UpstreamReply:
    """Send a body and read the whole reply."""
    return await whole(await upstream.send("POST", url, body, headers))


def says(*pieces: bytes, pause_s: float = 0.0, then_close: bool = True) -> RawServer:
    """A server that answers each request with these bytes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_s)
            if then_close:
                return

    return RawServer(handler)


WHOLE: dict[str, tuple[tuple[bytes, ...], bytes]] = {
    "length": ((GOOD,), b"hello"),
    "no framing: the end of the connection": ((OK + b"\r\n", b"hel", b"lo"), b"hello"),
    "chunked": ((OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",), b"hello"),
    "a byte at a time": (tuple(GOOD[at : at + 1] for at in range(len(GOOD))), b"hello"),
    "chunks of a byte": (
        (OK + b"transfer-encoding: chunked\r\n\r\n", *(b"1\r\n%c\r\n" % byte for byte in b"hello"), b"0\r\n\r\n"),
        b"hello",
    ),
    "trailers": ((OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n",), b"hello"),
    "an interim reply": ((b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n", GOOD), b"hello"),
    "two interim replies at once": ((b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" + GOOD,), b"hello"),
    "garbage after the end": ((GOOD + b"\x00garbage\r\n\r\n",), b"hello"),
    "a second reply after the end": ((GOOD + GOOD,), b"hello"),
    "nothing in it": ((OK + b"content-length: 0\r\n\r\n",), b""),
    "204": ((b"HTTP/1.1 204 No Content\r\n\r\n",), b""),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_whole_replies(upstream: HttpUpstream, name: str) -> None:
    """However a complete reply is framed and cut, its body comes out whole, and the next call works."""
    pieces, body = WHOLE[name]
    with says(*pieces) as server:
        for _ in range(3):
            assert (await post(upstream, server.url, b"{}", {})).body == body


BAD: dict[str, tuple[bytes, ...]] = {
    "closed without a word": (),
    "closed within the headers": (OK + b"content-le",),
    "closed within the body": (OK + b"content-length: 5\r\n\r\nhel",),
    "closed within a chunk": (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhel",),
    "closed before the last chunk": (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",),
    "a status that is none": (b"HTTP/1.1 099 X\r\ncontent-length: 2\r\n\r\n{}",),
    "a status of zeros": (b"HTTP/1.1 000 X\r\ncontent-length: 2\r\n\r\n{}",),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n",),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00",),
    "two lengths": (OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!",),
    "length and chunks": (OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",),
    "a length below zero": (OK + b"content-length: -5\r\n\r\nhello",),
    "a chunk of no length": (OK + b"transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",),
    "an endless header": (OK + b"x: ", *(b"a" * 50_000 for _ in range(10))),
    "endless headers": (OK, *(b"x%d: y\r\n" % number * 1000 for number in range(100))),
    "an endless chunk extension": (
        OK + b"transfer-encoding: chunked\r\n\r\n5;",
        *(b"a" * 50_000 for _ in range(10)),
    ),
    "extensions bit by bit": (
        OK + b"transfer-encoding: chunked\r\n\r\n",
        *(b"1;%b\r\nx\r\n" % (b"a" * 5000) for _ in range(200)),
        b"0\r\n\r\n",
    ),
    "endless trailers": (OK + b"transfer-encoding: chunked\r\n\r\n0\r\nx: ", *(b"a" * 50_000 for _ in range(10))),
    "switching protocols": (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",),
    "too large, said so": (OK + b"content-length: 100001\r\n\r\n", b"x" * 100_001),
    "too large, unsaid": (OK + b"\r\n", *(b"x" * 50_000 for _ in range(3))),
}


@pytest.mark.parametrize("name", BAD)
async def test_broken_replies(upstream: HttpUpstream, name: str) -> None:
    """A reply that is cut short, contradicts itself or has no end is UpstreamBroken; never a short body, never a hang."""
    with says(*BAD[name], then_close=not name.startswith("endless")) as server, pytest.raises(UpstreamBroken):
        await post(upstream, server.url, b"{}", {})
    with says(GOOD) as server:
        assert (await post(upstream, server.url, b"{}", {})).body == b"hello"


async def test_headers_and_status_come_through(upstream: HttpUpstream) -> None:
    """Status, spans and Retry-After are the engine's."""
    with says(b"HTTP/1.1 503 Paused" + GOOD[15:]) as server:
        reply = await upstream.get(server.url, {})
        assert (reply.status, reply.headers["x-claw-tokens"], reply.headers["retry-after"]) == (503, "3", "3")


async def test_connections_are_used_again(upstream: HttpUpstream) -> None:
    """Calls one after the other share a connection, with framing that allows it."""
    with says(GOOD, then_close=False) as server:
        for _ in range(5):
            await post(upstream, server.url, b"{}", {})
        assert server.connections == 1


async def test_a_connection_closed_between_calls_costs_nothing(upstream: HttpUpstream) -> None:
    """An engine that closes idle connections is not a broken engine, even when it does so while we are asking."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(GOOD)
        await request(reader)  # the second call is taken off the wire, and dropped

    with RawServer(handler) as server:
        for _ in range(4):
            assert (await post(upstream, server.url, b"{}", {})).body == b"hello"


async def test_garbage_between_calls_spoils_only_its_connection(upstream: HttpUpstream) -> None:
    """Bytes that nobody asked for are no reply to the next call."""
    sent, loop = asyncio.Event(), asyncio.get_running_loop()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request(reader)
            for piece in (GOOD, OK + b"content-length: 4\r\n\r\nevil"):
                writer.write(piece)
                await asyncio.sleep(0.02)
            loop.call_soon_threadsafe(sent.set)

    with RawServer(handler) as server:
        for _ in range(3):
            assert (await post(upstream, server.url, b"{}", {})).body == b"hello"
            await sent.wait()
            sent.clear()
            await asyncio.sleep(0.1)  # and read, where somebody reads it


@pytest.mark.parametrize("pieces", [(), (OK,), (OK + b"content-length: 5\r\n\r\nhel",)])
async def test_silence_has_a_deadline(upstream: HttpUpstream, pieces: tuple[bytes, ...]) -> None:
    """Silence before, within and after the headers is UpstreamTimeout."""
    with says(*pieces, then_close=False) as server, pytest.raises(UpstreamTimeout):
        await post(upstream, server.url, b"{}", {})


async def test_a_drip_has_the_same_deadline(upstream: HttpUpstream) -> None:
    """An engine that sends a byte now and then does not push its deadline."""
    drip = [OK + b"\r\n", *(b"x" for _ in range(100))]
    with says(*drip, pause_s=0.05) as server, pytest.raises(UpstreamTimeout):
        await post(upstream, server.url, b"{}", {})


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "http://[::1", "ftp://x", "http://", "http://x:99999", "http://a..b"]
)
async def test_unreachable(upstream: HttpUpstream, url: str) -> None:
    """What cannot be connected to never had the call."""
    with pytest.raises(UpstreamUnreachable):
        await post(upstream, url, b"{}", {})


@pytest.mark.parametrize("at", ["headers", "body"])
async def test_cancelling_closes_the_connection(upstream: HttpUpstream, at: str) -> None:
    """The engine learns at once that nobody waits any more, and no later call meets the late reply."""
    begun, left = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        if at == "body":
            writer.write(OK + b"content-length: 5\r\n\r\nhel")
        loop.call_soon_threadsafe(begun.set)
        assert await reader.read() == b""
        loop.call_soon_threadsafe(left.set)

    with RawServer(handler) as server:
        call = asyncio.ensure_future(post(upstream, server.url, b"{}", {}))
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        if at == "body":
            await asyncio.sleep(0.1)  # for what came of it to be read
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(left.wait(), PATIENCE_S)


async def test_a_stream_arrives_as_it_is_sent(upstream: HttpUpstream) -> None:
    """Pieces are there before the last one is sent; leaving early closes the connection."""
    pieces = [b"%x\r\n%b\r\n" % (len(data), data) for data in (b"one", b"two", "é".encode()[:1], "é".encode()[1:])]
    head = OK + b"transfer-encoding: chunked\r\n\r\n"
    with says(head, *pieces, b"0\r\n\r\n", pause_s=0.1) as server:
        async with await upstream.send("POST", server.url, b"{}", {}) as reply:
            assert reply.status == 200
            got = [await reply.first()]
            await reply.relay(lambda piece: got.append(piece) is None)
            assert b"".join(got) == "onetwoé".encode()
            assert len(got) > 1  # a machine that is busy reads several at once
        async with await upstream.send("POST", server.url, b"{}", {}) as reply:
            assert await reply.first() == b"one"
        with pytest.raises(UpstreamBroken):
            await reply.read()


async def test_a_stream_that_breaks_says_so(upstream: HttpUpstream) -> None:
    """What arrived is handed over; then the error, never a quiet end."""
    with says(OK + b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n", b"3\r\ntw", pause_s=0.03) as server:
        async with await upstream.send("POST", server.url, b"{}", {}) as reply:
            got = [await reply.first()]
            with pytest.raises(UpstreamBroken):
                await reply.relay(lambda piece: got.append(piece) is None)
            assert b"".join(got) == b"onetw"


async def test_a_slow_reader_slows_the_engine(upstream: HttpUpstream) -> None:
    """A reader that does not read, or takes a pause, bounds what is held; when it reads on, everything is there."""
    size, got = 8_000_000, [0]
    async with HttpUpstream(1.0, 20.0, 2 * size) as client:
        with says(OK + b"content-length: %d\r\n\r\n" % size, *(b"x" * 100_000 for _ in range(80))) as server:
            async with await client.send("POST", server.url, b"{}", {}) as reply:

                def sink(piece: bytes) -> bool:
                    got.append(len(piece))
                    if len(got) == 3:
                        reply.pause()
                    return True

                got[0] = len(await reply.first())
                await asyncio.sleep(0.3)
                reading = asyncio.ensure_future(reply.relay(sink))
                await until_async(lambda: len(got) >= 3)
                await asyncio.sleep(0.3)
                assert len(got) == 3, "the pause"
                assert sum(got) < 2_000_000
                reply.resume()
                await reading
            assert sum(got) == size


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "a\rb", "a\0b"])
async def test_no_header_is_injected(upstream: HttpUpstream, value: str) -> None:
    """A value that would end its line is refused before anything is sent."""
    with pytest.raises(InvalidRequest):
        await post(upstream, "http://127.0.0.1:1", b"{}", {"x-request-id": value})


async def test_many_failures_leave_nothing_behind(upstream: HttpUpstream) -> None:
    """Hundreds of broken exchanges keep no connection, task or timer alive."""
    before = len(asyncio.all_tasks())
    with says(OK + b"content-length: 5\r\n\r\nhel") as server:
        for _ in range(200):
            with pytest.raises(GatewayError):
                await post(upstream, server.url, b"{}", {})
    gc.collect()
    assert len(asyncio.all_tasks()) == before
    assert not any(upstream.idle_connections.values())

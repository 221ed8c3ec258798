"""Bytes on a socket: for requests and replies that no HTTP library would write."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

import aiohttp

from tests.gateway.house import House

CHAT = "/t/g/v1/chat/completions"
GOOD = b'{"model": "tiny", "messages": []}'
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def say(
    url: str, *pieces: bytes, pause_s: float = 0.0, end: bool = False, timeout_s: float = 10.0, after: bytes = b""
) -> bytes:
    """Everything that a server answers to these bytes until it closes the connection, or `timeout_s` is over.

    after: the end of the reply that each piece but the first waits for.
    """
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    so_far = bytearray()
    heard = asyncio.ensure_future(_all(reader, so_far))
    with contextlib.suppress(ConnectionError):
        for number, piece in enumerate(pieces):
            while number and not so_far.endswith(after) and not heard.done():  # noqa: ASYNC110  # bytes set no event
                await asyncio.sleep(0.01)
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        if end:
            writer.write_eof()
    try:
        return await asyncio.wait_for(heard, timeout_s)
    finally:
        writer.close()


async def _all(reader: asyncio.StreamReader, heard: bytearray) -> bytes:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(1 << 16):
            heard += piece
    return bytes(heard)


class RawServer:
    """A server in a thread of its own that does with each connection what `handler` says."""

    def __init__(self, handler: Handler) -> None:
        self.connections = 0
        self._handler = handler
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "RawServer":
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(5)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._handler(reader, writer)
        writer.close()


async def request(reader: asyncio.StreamReader) -> bytes:
    """One request with a declared length, head and body. Raises IncompleteReadError when the client leaves."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    return head + await reader.readexactly(int(length.partition(b":")[2]))


async def send(house: House, method: str, path: str, data: bytes | None, **headers: str) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, house.url + path, data=data, headers=named) as reply,
    ):
        return reply.status, await reply.read()


BODIES: list[tuple[str, bytes]] = [
    (CHAT, b""),
    (CHAT, b"{"),
    (CHAT, b"null"),
    (CHAT, b"[]"),
    (CHAT, b'"x"'),
    (CHAT, b"\xff\xfe"),
    (CHAT, b"\x00"),
    (CHAT, b'{"messages": NaN}'),
    (CHAT, b'{"messages": ["\\ud800"]}'),
    (CHAT, b"[" * 100_000),
    (CHAT, b'{"messages": [],}'),
    (CHAT, b"{}"),
    (CHAT, b'{"messages": "hi"}'),
    (CHAT, b'{"messages": [], "model": 5}'),
    ("/groups", b"{"),
    ("/groups", b"[]"),
    ("/groups", b'{"size": 0}'),
    ("/groups", b'{"size": "many"}'),
    ("/groups", b'{"size": 1e99}'),
    ("/groups", b'{"group_id": ""}'),
    ("/groups", b'{"group_id": "a\\u0000b"}'),
    ("/groups", b'{"group_id": "\\ud800"}'),
    ("/groups", b'{"deadline_s": -1}'),
    ("/groups", b'{"deadline_s": NaN}'),
    ("/groups", b'{"sise": 8}'),
    ("/groups", b"[" * 100_000),
    ("/t/g/v1/register_trajectory", b'{"channel": 5}'),
    ("/t/g/v1/register_trajectory", b'{"tags": "x"}'),
    ("/t/g/v1/complete_trajectory", b'{"calls": -1}'),
    ("/t/g/v1/complete_trajectory", b'{"calls": 99999999999}'),
    ("/t/g/v1/complete_trajectory", b'{"status": "evicted"}'),
    ("/t/g/v1/complete_trajectory", b'{"reward": "x"}'),
    ("/t/g/v1/complete_trajectory", b'{"reward": Infinity}'),
    ("/t/g/v1/complete_trajectory", b'{"reward": -1e31}'),
    ("/t/g/v1/rewards", b""),
    ("/t/g/v1/rewards", b"{}"),
    ("/t/g/v1/rewards", b'{"value": []}'),
    ("/t/g/v1/rewards", b'{"value": 1, "call_id": "c", "step_index": 0}'),
    ("/t/g/v1/rewards", b'{"value": 1, "revision": 99999999999999999999}'),
    ("/t/g/v1/rewards", b'{"value": 1, "metadata": NaN}'),
    ("/t/g/v1/rewards", b'{"value": 1, "metadata": 1e400}'),
    ("/t/g/v1/rewards", b'{"value": 1, "metadata": {"a": 123456789012345678901234567890}}'),
    ("/t/g/v1/rewards", b'{"value": 1, "metadata": "\\udc00"}'),
    ("/t/g/v1/rewards", b'{"value": 1, "\\udc00": 1}'),
    ("/t/g/v1/rewards", b'\xef\xbb\xbf{"value": 1}'),
]

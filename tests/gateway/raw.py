"""Bytes on a socket: for requests and replies that no HTTP library would write."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def say(url: str, *pieces: bytes, pause_s: float = 0.0, end: bool = False, timeout_s: float = 10.0) -> bytes:
    """Everything that a server answers to these bytes until it closes the connection, or `timeout_s` is over."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    heard = asyncio.ensure_future(_all(reader))
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        if end:
            writer.write_eof()
    try:
        return await asyncio.wait_for(heard, timeout_s)
    finally:
        writer.close()


async def _all(reader: asyncio.StreamReader) -> bytes:
    heard = bytearray()
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

"""An engine that costs nothing: a fixed reply to every request of a route, whole, late or as a stream.

The request's body says how: `"bench_delay_ms": 1000` waits first; `"stream":true` streams `"bench_chunks": 100` chunks,
one each `"bench_pace_ms": 10` (0: as fast as the socket takes them). `python -m bench.scripted_upstream PORT`.
"""

import asyncio
import re
import sys
from typing import cast

import uvloop

from bench.scripted_replies import Scripted, packed_routes

BACKLOG = 8192
NUMBER = re.compile(rb'"bench_(delay_ms|chunks|pace_ms)": ?(\d+)')


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM_END = b"0\r\n\r\n"
PACKED = {**packed_routes(), b"/v1/traces": Scripted(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", [], [])}


def script(head: bytes) -> Scripted:
    """Returns the replies for this request."""
    path = head.split(b" ", 2)[1]
    return next(scripted for end, scripted in PACKED.items() if path.endswith(end))


class Engine(asyncio.Protocol):
    """One connection, one request at a time, `content-length` only."""

    def __init__(self) -> None:
        self._data = b""
        self._streaming: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._streaming:
            self._streaming.cancel()

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if len(body) >= (int(length[1]) if length else 0):
            self._data = b""
            self._answer(body, script(head))

    def _answer(self, body: bytes, replies: Scripted) -> None:
        asked = {name.decode(): int(number) for name, number in NUMBER.findall(body)}
        if re.search(rb'"stream": ?true', body):
            stream = self._stream(replies, asked.get("chunks", 100), asked.get("pace_ms", 0) / 1000)
            self._streaming = asyncio.get_running_loop().create_task(stream)
        elif delay_ms := asked.get("delay_ms"):
            asyncio.get_running_loop().call_later(delay_ms / 1000, self._transport.write, replies.whole)
        else:
            self._transport.write(replies.whole)

    async def _stream(self, replies: Scripted, chunks: int, pace_s: float) -> None:
        self._transport.write(STREAM_HEAD)
        due_s = asyncio.get_running_loop().time()
        for number in range(chunks):
            self._transport.write(replies.chunks[min(number, len(replies.chunks) - 1)])
            due_s += pace_s
            await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
        self._transport.write(b"".join(replies.ends) + STREAM_END)


async def main(port: int, host: str) -> None:
    """Answer until killed."""
    server = await asyncio.get_running_loop().create_server(Engine, host, port, backlog=BACKLOG)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), *sys.argv[2:] or ["127.0.0.1"]))

"""The floor: requests and replies forwarded verbatim; only their framing is followed, so that connections can be shared.

`python -m bench.gateway.byte_proxy PORT UPSTREAM_PORT`; prints `listening` when it does.
"""

import asyncio
import sys
from typing import cast

import httptools
import uvloop

BACKLOG = 8192


class Back(asyncio.Protocol):
    """A connection to the upstream: what it says goes to the client at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def ask(self, front: "Front", request: bytes) -> None:
        self._front, self._parser = front, httptools.HttpResponseParser(self)
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._front.transport.write(data)
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._front.idle.append(self)


class Front(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, upstream_port: int, idle: list[Back]) -> None:
        self._upstream_port, self.idle = upstream_port, idle
        self._tasks: set[asyncio.Task[None]] = set()
        self._parser = httptools.HttpRequestParser(self)
        self._request: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._request.append(data)
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        request, self._request = b"".join(self._request), []
        while self.idle:
            back = self.idle.pop()
            if not back.transport.is_closing():
                back.ask(self, request)
                return
        task = asyncio.get_running_loop().create_task(self._connect(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, request: bytes) -> None:
        _, back = await asyncio.get_running_loop().create_connection(Back, "127.0.0.1", self._upstream_port)
        back.ask(self, request)


async def main(port: int, upstream_port: int) -> None:
    """Forward until killed."""
    idle: list[Back] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Front(upstream_port, idle), "127.0.0.1", port, backlog=BACKLOG)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))

"""Below the floor: bytes forwarded as they come, one upstream connection per client connection, nothing looked at.

`python -m bench.blind_proxy PORT UPSTREAM_PORT`; prints `listening` when it does.
"""

import asyncio
import sys
from typing import cast

import uvloop

BACKLOG = 8192


class Side(asyncio.Protocol):
    """One socket of a pair; what it hears the other one says."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.peer and self.peer.transport:
            self.peer.transport.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.peer and self.peer.transport:
            self.peer.transport.close()


class Front(Side):
    """The client's side: opens the other one, and keeps what comes before that is done."""

    def __init__(self, upstream_port: int) -> None:
        super().__init__()
        self._upstream_port = upstream_port
        self._early: list[bytes] = []
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            self._early.append(data)
        else:
            super().data_received(data)

    async def _connect(self) -> None:
        _, back = await asyncio.get_running_loop().create_connection(Side, "127.0.0.1", self._upstream_port)
        back.peer, self.peer = self, back
        for data in self._early:
            super().data_received(data)


async def main(port: int, upstream_port: int) -> None:
    """Forward until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Front(upstream_port), "127.0.0.1", port, backlog=BACKLOG)
    print("listening", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))

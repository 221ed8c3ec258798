"""The HTTP server, whose stop causes no error that a client could see.

Invariant: once a stop has begun, no connection is accepted, every reply says `connection: close`, and a connection
is closed by us only when it has been idle for `linger_s`: a request that is on its way meanwhile is answered.
"""

import asyncio
import socket
import time
from contextlib import suppress
from types import FrameType
from typing import cast

import uvicorn

from claw_r1.gateway.http.connection import ClientConnection
from claw_r1.gateway.http.reply import CLOSE

TICK_S = 0.02


class GracefulServer(uvicorn.Server):
    """uvicorn's server, with a stop that clients do not notice, and after which the process can exit 0."""

    def __init__(self, config: uvicorn.Config, linger_s: float, grace_s: float) -> None:
        super().__init__(config)
        self._linger_s, self._grace_s = linger_s, grace_s
        self._arriving: set[asyncio.Task[None]] = set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn gives both
        """First signal: drain. Second: leave at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, within the grace; what is left then is cancelled."""
        deadline = time.monotonic() + self._grace_s
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        for listener in sockets or []:
            self._accept_the_last(listener)
        for server in self.servers:
            server.close()
        await self._drain(deadline)
        await super().shutdown(sockets)

    def _accept_the_last(self, listener: socket.socket) -> None:
        """Take the connections that the kernel has completed: they would be reset when the listener closes."""
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:  # nobody waits
                return
            connected.setblocking(False)
            arriving = asyncio.create_task(self._welcome(connected))
            self._arriving.add(arriving)
            arriving.add_done_callback(self._arriving.discard)

    async def _welcome(self, connected: socket.socket) -> None:
        """Serve a connection, behind TLS where the others are; a client that is silent over it is as one that is idle."""
        secured, loop = self.config.ssl, asyncio.get_running_loop()
        timeout_s = max(self._linger_s, TICK_S) if secured else None
        with suppress(OSError):  # no handshake, no connection
            await loop.connect_accepted_socket(self._protocol, connected, ssl=secured, ssl_handshake_timeout=timeout_s)

    def _protocol(self) -> asyncio.Protocol:
        kind = self.config.http_protocol_class
        connection: asyncio.Protocol = kind(  # type: ignore[call-arg]  # uvicorn's own protocols all take these
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return connection

    async def _drain(self, deadline: float) -> None:
        connections = cast("set[ClientConnection]", self.server_state.connections)
        idle_since: dict[ClientConnection, float] = {}
        while (connections or self._arriving) and not self.force_exit and (now := time.monotonic()) < deadline:
            idle_since = {each: idle_since.get(each, now) for each in connections if each.is_idle}
            for connection, since in idle_since.items():
                if now - since >= self._linger_s:
                    connection.shutdown()
            await asyncio.sleep(TICK_S)

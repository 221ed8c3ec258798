"""The HTTP server, stopped without an error that a client could see.

Invariant: after a stop was asked for, no connection is accepted, every reply says `connection: close`, and a connection
is closed by us only when it has been idle for `linger_s`: a request that is on its way meanwhile is answered.
"""

import asyncio
import socket
import time
from types import FrameType

import structlog
import uvicorn

CLOSE = (b"connection", b"close")
TICK_S = 0.02
log = structlog.get_logger()


class GracefulServer(uvicorn.Server):
    """uvicorn, with a stop that clients do not notice and that is a success when it was asked for."""

    def __init__(self, config: uvicorn.Config, linger_s: float, grace_s: float) -> None:
        super().__init__(config)
        self._linger_s, self._grace_s = linger_s, grace_s

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn gives both
        """First signal: drain. Second: leave at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, within the grace; what is left then is cancelled."""
        deadline = time.monotonic() + self._grace_s
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        for listener in sockets or []:
            await self._accept_the_last(listener)
        for server in self.servers:
            server.close()
        await self._drain(deadline)
        await super().shutdown(sockets)

    async def _accept_the_last(self, listener: socket.socket) -> None:
        """Connections that the kernel has completed would be reset with the listener."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:  # nobody waits
                return
            connected.setblocking(False)
            await loop.connect_accepted_socket(self._protocol, connected)

    def _protocol(self) -> asyncio.Protocol:
        kind = self.config.http_protocol_class
        made: asyncio.Protocol = kind(  # type: ignore[call-arg]  # uvicorn's own protocols all take these
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def _drain(self, deadline: float) -> None:
        idle_since: dict[int, float] = {}
        while self.server_state.connections and not self.force_exit and time.monotonic() < deadline:
            for connection in list(self.server_state.connections):
                self._drain_one(connection, idle_since)
            await asyncio.sleep(TICK_S)

    def _drain_one(self, connection: object, idle_since: dict[int, float]) -> None:
        cycle = getattr(connection, "cycle", None)
        if cycle is None or cycle.response_complete:
            now = time.monotonic()
            if now - idle_since.setdefault(id(connection), now) >= self._linger_s:
                connection.shutdown()  # type: ignore[attr-defined]  # uvicorn's protocols share no public type
            return
        idle_since.pop(id(connection), None)
        if not cycle.response_started:
            cycle.keep_alive = False

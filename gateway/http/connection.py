"""A client's connection: requests come in one after the other and are answered in that order.

Invariant: a client that exceeds a deadline or a limit loses its connection, and no other client is affected.
uvicorn accepts connections, makes one of these objects for each, and stops them; ADR 0009 lists what we rely on there.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from claw_r1.gateway.errors import GatewayError, HeaderList, Overloaded, RequestTimeout
from claw_r1.gateway.http.door import Door
from claw_r1.gateway.http.exchange import Exchange
from claw_r1.gateway.http.request_parser import RequestHead, RequestParser
from claw_r1.gateway.http.write_flow import WriteFlow

SLICE_BYTES = 16 << 10
"""The bytes that the parser gets at once: its limits are looked at in between."""
WAITING_MAX = 8
"""Requests of a connection that wait for the one before them, beyond which no more are read."""


class ClientConnection(asyncio.Protocol):
    """One connection. A subclass for each gateway holds its door, since uvicorn makes the instances."""

    door: Door

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002  # uvicorn gives it; whatever it holds is for ASGI apps
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = _loop or asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.waiting: deque[Exchange] = deque()
        """Requests whose turn has not come."""
        self._server, self._idle_s, self._settings = server_state, config.timeout_keep_alive, self.door.settings
        self._parser = RequestParser(self, self._settings.headers_bytes_max)
        self._deadline: asyncio.TimerHandle | None = None
        self.flow = WriteFlow(self.loop, self._settings.write_timeout_s)
        self._in_headers = self._is_resting = True
        self._newest: Exchange | None = None
        """The last request whose headers were read."""
        self._answering: Exchange | None = None

    # For the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # TCP reads and writes
        """Start the clock: a client that sends nothing is cut off like one that never finishes its request."""
        self.transport = transport
        self._server.connections.add(self)  # type: ignore[arg-type]  # uvicorn names its own classes there
        self._expect_within(self._settings.headers_timeout_s)
        if len(self._server.connections) > self._settings.connections_max:
            self._refuse_and_close(Overloaded("too many connections", retry_after_s=1.0))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio gives it
        """No timer and no request outlives its connection."""
        self._server.connections.discard(self)
        self._expect_nothing()
        self.flow.end()
        for exchange in (self._answering, *self.waiting):
            if exchange is not None:
                exchange.client_disconnected()
        self._newest = self._answering = None
        self.waiting.clear()
        del self._parser  # which holds this object, as its requests do

    def data_received(self, data: bytes) -> None:
        """Parse what was received, as far as the limits allow."""
        if self._is_resting:
            self._is_resting = False
            self._expect_within(self._settings.headers_timeout_s)  # line breaks before a request are no request yet
        try:
            for at in range(0, len(data), SLICE_BYTES):
                if not self.transport.is_closing():
                    self._parser.feed(data[at : at + SLICE_BYTES])
        except GatewayError as refusal:
            self._refuse_and_close(refusal)

    def pause_writing(self) -> None:
        """Buffers are full: the client reads slower than we write, so we read nothing more from it."""
        self.flow.pause(self.transport)
        self._regulate_reading()

    def resume_writing(self) -> None:
        """The client has read enough: go on."""
        self.flow.resume()
        self._regulate_reading()
        if self._answering is not None and self._answering.on_drained is not None:
            self._answering.on_drained()

    # For the parser

    def request_begins(self) -> None:
        self._in_headers = True
        self._expect_within(self._settings.headers_timeout_s)

    def request_head(self, head: RequestHead) -> None:
        """The headers of a request are here. The door looks at it when its turn comes; its body may still be coming."""
        if self.transport.is_closing():  # what stands behind the last request in the same packet
            return
        self._in_headers = False
        self._expect_within(self._settings.body_timeout_s)
        exchange = Exchange(self, self.door, head)
        is_next = self.is_idle
        self._newest = exchange
        if is_next:
            self._answering = exchange
            exchange.start_turn()
        else:
            self.waiting.append(exchange)
            self._regulate_reading()

    def request_body(self, piece: bytes) -> None:
        if self._newest is not None:
            self._newest.feed(piece)

    def request_ends(self) -> None:
        self._expect_nothing()
        if self._newest is not None:
            self._newest.body_complete()
        self._rest()

    # For exchanges

    @property
    def common_headers(self) -> HeaderList:
        """Headers of every reply: the date, and at a stop that the connection closes."""
        return self._server.default_headers

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Answer a request in a task, for which a stop waits."""
        task = self.loop.create_task(work)
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def reply_complete(self) -> None:
        """The turn goes to the next request."""
        self._answering = None
        if self.transport.is_closing():
            return
        if self.waiting:
            self._answering = self.waiting.popleft()
            self.loop.call_soon(self._answering.start_turn)  # not from within this reply: there may be thousands
        self._regulate_reading()
        self._rest()

    # For a stop

    @property
    def is_idle(self) -> bool:
        """Every request that was read has its reply."""
        return self._newest is None or self._newest.complete

    def shutdown(self) -> None:
        """Close the connection, at once or after the reply that is due."""
        if self._newest is None or self._newest.complete:
            self.transport.close()
        else:
            self._newest.keep_alive = False

    def _rest(self) -> None:
        """Wait for the next request, where nothing else is due."""
        if not self.transport.is_closing() and self.is_idle and self._deadline is None:
            self._is_resting = True
            self._expect_within(self._idle_s)

    def _expect_within(self, timeout_s: float) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(timeout_s, self._too_late)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _regulate_reading(self) -> None:
        """Read more requests only while few wait, and while the client reads its replies."""
        if self.transport.is_closing():
            return
        if len(self.waiting) < WAITING_MAX and not self.flow.is_paused:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _too_late(self) -> None:
        if not self.transport.is_reading():  # a pipelined request waits for us, not we for it
            self._expect_within(self._settings.body_timeout_s)
        elif self._is_resting:  # no request has begun, so there is none to answer
            self.transport.close()
        else:
            part = "headers" if self._in_headers else "body"
            self._refuse_and_close(RequestTimeout(f"the request's {part} did not come in time"))

    def _refuse_and_close(self, error: GatewayError) -> None:
        """Reply with the error, where that cannot pass for another reply or a part of one, and close."""
        self._expect_nothing()
        if self.transport.is_closing():
            return
        exchange = self._at_fault()
        if exchange is not None:
            self.door.refuse_unreadable(exchange, error)
        self.transport.close()

    def _at_fault(self) -> Exchange | None:
        """The request that is being read, if its turn has come and it has no reply yet."""
        newest = self._newest
        if self.waiting or (self._in_headers and not self.is_idle):
            return None
        if newest is None or self._in_headers:
            return Exchange(self, self.door, self._parser.head)
        return None if newest.started or newest.is_whole else newest


def connections_to(door: Door) -> type[ClientConnection]:
    """The protocol class for `uvicorn.Config(http=…)`, whose instances uvicorn makes by itself."""
    return type("ClientConnection", (ClientConnection,), {"door": door})

"""The client's side of one model call: its request, and the reply written straight to its connection.

Model calls do without ASGI, whose task, events and messages cost more than the rest of the way through; all other
requests go through it (`app.py`). A call begins when its body is whole, and not before the earlier ones of its
connection are answered. Invariant: a reply is written once; a stream is ended only by `end`, else its connection closes.
"""

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.errors import BodyTooLarge, ClientGone, GatewayError, HeaderList, Overloaded, as_http
from gateway.http.memory_budget import Budget

T = TypeVar("T")
CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
CLOSE = (b"connection", b"close")
CHUNKED = b"transfer-encoding: chunked\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Handler(Protocol):
    """What answers model calls."""

    body_bytes_max: int
    budget: Budget

    def admit(self, client: "Exchange") -> None:
        """Before the body is read. Raises GatewayError."""
        ...

    async def answer(self, client: "Exchange") -> None:
        """Answers one call; raises nothing."""
        ...

    def refuse(self, client: "Exchange", error: GatewayError) -> None:
        """Answers a call whose turn it is, and that is not begun."""
        ...

    def refused(self, method: str, path: bytes, status: int, reply_bytes: int) -> None:
        """A connection was refused what it asked for, or what was no request, and is closed. path: undecoded, if known."""
        ...


class ClientConnection(Protocol):
    """What a client's connection does for its calls."""

    transport: asyncio.Transport
    flow: FlowControl

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a call as a task."""
        ...

    def over(self) -> None:
        """The reply is complete: the next request may be answered."""
        ...


class Exchange:
    """One request. The fields up to `more_body` are those that uvicorn's connection looks at."""

    __slots__ = (
        "_begun",
        "_chunked",
        "_connection",
        "_expects_continue",
        "_fixed",
        "_handler",
        "_refusal",
        "_rest",
        "_turn",
        "_watcher",
        "body",
        "call_id",
        "disconnected",
        "headers",
        "held_bytes",
        "keep_alive",
        "more_body",
        "on_drained",
        "path",
        "response_complete",
        "response_started",
        "sent_bytes",
        "status",
        "turn_s",
        "upstream_s",
    )

    def __init__(
        self,
        connection: ClientConnection,
        handler: Handler,
        *,
        path: bytes,
        headers: HeaderList,
        fixed: HeaderList,
        keep_alive: bool,
        chunked: bool,
        expects_continue: bool,
    ) -> None:
        """fixed: headers of every reply. path: undecoded, without its query. chunked: the client knows chunks (HTTP/1.1)."""
        self._connection, self._handler = connection, handler
        self.path, self.headers = path, headers
        self._fixed, self.keep_alive, self._expects_continue = fixed, keep_alive, expects_continue
        self._chunked = chunked
        self.response_started = self.response_complete = self.disconnected = False
        self.body = b""
        self.more_body = True
        self._rest = bytearray()
        """Of the body, after its first piece."""
        self.held_bytes = self.status = self.sent_bytes = 0
        self.upstream_s = 0.0
        """Spent in engines, for a call that failed there."""
        self.call_id: str | None = None
        self.on_drained: Callable[[], None] | None = None
        self.turn_s = 0.0
        """When all earlier requests were answered (perf_counter)."""
        self._turn = self._begun = False
        self._refusal: GatewayError | None = None
        self._watcher: asyncio.Task[Any] | None = None

    # For the connection

    def turn(self) -> None:
        """All earlier requests are answered: refuse this one, or begin with it once its body is whole."""
        if self.disconnected:
            return
        self._turn, self.turn_s = True, time.perf_counter()
        try:
            self._handler.admit(self)
            if self._refusal is not None:
                raise self._refusal
        except GatewayError as refused:
            self.keep_alive = (
                self.keep_alive and not self._expects_continue
            )  # it may send its body, or the next request
            self._drop(refused)
            return
        if self._expects_continue:
            self._connection.transport.write(CONTINUE)
        if not self.more_body:
            self._begin()

    def feed(self, piece: bytes) -> None:
        """A piece of body arrived."""
        if self._begun or self._refusal is not None:  # of a request behind it that was refused, or of its own
            return
        self.hold(len(piece))
        if self.held_bytes > self._handler.body_bytes_max:
            self._drop(too_large(self._handler.body_bytes_max))
        elif self._handler.budget.left_bytes < 0:
            self._drop(no_room())
        elif self.body:
            self._rest += piece
        else:
            self.body = piece

    def whole(self) -> None:
        """The body is whole."""
        self.more_body = False
        if self._turn and not self._begun and self._refusal is None:
            self._begin()

    def gone(self) -> None:
        """The connection is lost."""
        self.disconnected = not self.response_complete
        if self.disconnected and self._watcher is not None:
            self._watcher.cancel()
        if not self._begun:
            self.release()

    def drained(self) -> None:
        """What was written is on its way: there is room again."""
        if self.on_drained is not None:
            self.on_drained()

    def _begin(self) -> None:
        self._begun = True
        if self._rest:
            self.body += self._rest
            self._rest.clear()
        self._connection.begin(self._handler.answer(self))

    def _drop(self, refusal: GatewayError) -> None:
        """Refuse this request, as soon as its turn has come; what was read of its body, and what still comes, is dropped."""
        self._refusal = refusal
        self.release()
        if self._turn and not self.response_started:
            self._handler.refuse(self, refusal)

    # For whoever answers

    @property
    def congested(self) -> bool:
        """Whether the client reads slower than we write; `on_drained` is called when that is over."""
        return self._connection.flow.write_paused

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which is cancelled when the client disconnects first: then ClientGone, once it ended."""
        if self._is_gone():
            work.close()
            raise ClientGone
        here = self._watcher = asyncio.current_task()
        try:
            return await work
        except asyncio.CancelledError:
            if here is None or not self._is_gone():
                raise  # somebody else's wish
            here.uncancel()
            raise ClientGone from None
        finally:
            self._watcher = None

    def hold(self, size_bytes: int) -> None:
        """So much more is held for this call, until its `release`."""
        self.held_bytes += size_bytes
        self._handler.budget.held_bytes += size_bytes

    def release(self) -> None:
        """Nothing is held for this call any more. Idempotent."""
        self._handler.budget.held_bytes -= self.held_bytes
        self.held_bytes = 0
        self.body = b""
        self._rest.clear()

    async def taken(self) -> None:
        """Returns when what was written is on its way, or the client is gone."""
        if self.congested:
            await self._connection.flow.drain()

    async def reply(self, status: int, headers: HeaderList, body: bytes) -> None:
        """One whole reply."""
        if self.congested and not self.disconnected:
            await self._connection.flow.drain()  # with the replies before it
        self.reply_now(status, headers, body)

    def reply_now(self, status: int, headers: HeaderList, body: bytes) -> None:
        """As `reply`, whether the client reads or not: for what is small."""
        if not self.disconnected:
            head = self._head(status, headers, b"content-length: %d\r\n" % len(body))
            self.sent_bytes = len(body)
            self._connection.transport.write(head + body)
            self._complete()

    def refuse(self, error: GatewayError, headers: HeaderList | None = None) -> None:
        """An error, with these headers besides its own, as its reply; the end of the connection where a reply is already under way."""
        if self.response_started:
            self.abort()
            return
        reply = as_http(error)
        self.reply_now(reply.status, [*reply.headers, *(headers or ())], reply.body)

    def start(self, status: int, headers: HeaderList) -> None:
        """The head of a stream."""
        if not self.disconnected:
            self._connection.transport.write(self._head(status, headers, CHUNKED if self._chunked else b""))

    def write(self, piece: bytes) -> None:
        """A piece of a stream."""
        if not self.disconnected:
            self.sent_bytes += len(piece)
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)

    def end(self, piece: bytes) -> None:
        """The last piece of a stream."""
        if not self.disconnected:
            if piece:
                self.write(piece)
            if self._chunked:
                self._connection.transport.write(b"0\r\n\r\n")
            self._complete()

    def abort(self) -> None:
        """Close the connection once what was written is sent: no client takes that for the end of a stream."""
        self._connection.transport.close()

    def _is_gone(self) -> bool:
        return self.disconnected

    def _head(self, status: int, headers: HeaderList, framing: bytes) -> bytes:
        status_line = STATUS_LINE[status]
        lines = [b"%b: %b\r\n" % header for header in (*self._fixed, *headers)]
        if CONTROL.search(b"".join([value for _, value in headers])):
            raise RuntimeError("a header must not hold control characters")
        closing = CLOSE in self._fixed
        if not self.keep_alive and not closing:
            lines.append(b"connection: close\r\n")
        self.keep_alive = self.keep_alive and not closing
        self.response_started, self.status = True, status
        return b"%b%b%b\r\n" % (status_line, b"".join(lines), framing)

    def _complete(self) -> None:
        self.response_complete = True
        if not self.keep_alive:
            self._connection.transport.close()
        self._connection.over()


def no_room() -> Overloaded:
    """The refusal of a body that the budget has no room for."""
    return Overloaded("the calls under way hold as many bytes as they may", retry_after_s=1.0)


def too_large(bytes_max: int) -> BodyTooLarge:
    """The refusal of a body over its limit."""
    return BodyTooLarge(f"the body is over {bytes_max} bytes")

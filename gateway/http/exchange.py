"""One request with its reply: its body as it comes, its turn on its connection, and what it holds in memory.

A request is answered when its body is whole, and not before the earlier ones of its connection are answered; either may come first:

    start_turn ─▶ Door.admit ──────┐
    feed … feed ─▶ body_complete ──┴▶ Door.answer ─▶ hold, reply … ─▶ finish ─▶ release

Before `Door.answer`, `Door.refuse` or `Door.refuse_unreadable` may end it; `client_disconnected` may come at any time.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from claw_r1.gateway.anthropic.errors import error_body_for
from claw_r1.gateway.call_protocol import CallProtocol
from claw_r1.gateway.errors import (
    BodyTooLarge,
    ClientGone,
    GatewayError,
    HeaderList,
    InvalidRequest,
    Overloaded,
    error_headers,
)
from claw_r1.gateway.http.encoding import decoder_of
from claw_r1.gateway.http.reply import ReplyWriter
from claw_r1.gateway.paths import Route
from claw_r1.schemas.api_keys import ApiKey

if TYPE_CHECKING:
    from claw_r1.gateway.http.connection import ClientConnection
    from claw_r1.gateway.http.door import Door
    from claw_r1.gateway.http.request_parser import RequestHead

T = TypeVar("T")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Exchange(ReplyWriter):
    """One request. Its connection feeds it, the door looks at it, and whoever answers it writes the reply."""

    def __init__(self, connection: "ClientConnection", door: "Door", head: "RequestHead") -> None:
        super().__init__(connection, head)
        self._door = door
        self.headers: HeaderList = head.headers
        """Without the API key, once the door has seen it."""
        self.key: ApiKey | None = None
        """By which it was let in; None where none is needed."""
        self.route: Route | None = None
        self.protocol: CallProtocol | None = None
        """The protocol of a model call, whose errors have its shape."""
        self.label = "refused"
        """Its name in metrics, once the door has let it in."""
        self.body_bytes_max = door.body_bytes_max
        self.body = b""
        """Once it is whole."""
        self._buffer = bytearray()
        self._decoder = decoder_of(head.headers)
        self.held_bytes = 0
        self.started_s = time.perf_counter()
        """The time when its turn came; once its body is whole, when that was (perf_counter)."""
        self.upstream_s = 0.0
        """Spent in engines, for a call that failed there."""
        self.call_id: str | None = None
        self.on_lost: Callable[[], None] | None = None
        """Called once when the client did not get its reply: none of status 200, none that it took to the end."""
        self.is_whole = self._has_turn = self._answer_started = False
        self._refusal: GatewayError | None = None
        self._watcher: asyncio.Task[Any] | None = None

    @property
    def is_call(self) -> bool:
        return self.protocol is not None

    @property
    def path(self) -> str:
        """Decoded, without its query."""
        return unquote(self.head.path.decode("ascii"))

    # For the connection

    def start_turn(self) -> None:
        """All earlier requests are answered: refuse this one, or answer it once its body is whole."""
        if self.disconnected:
            return
        self._has_turn, self.started_s = True, time.perf_counter()
        try:
            self._door.admit(self)
            if self._refusal is not None:
                raise self._refusal
            self._require_room(max(self._declared_bytes(), self.held_bytes))
        except GatewayError as refusal:
            # Who waits to be told to go on may send its body or its next request, and we could not tell which.
            self.keep_alive = self.keep_alive and not self.head.expects_continue
            self._refuse_in_turn(refusal)
            return
        if self.head.expects_continue:
            self._connection.transport.write(CONTINUE)
        if self.is_whole:
            self._start_answer()

    def feed(self, piece: bytes) -> None:
        if self._answer_started or self._refusal is not None:  # of a request behind it that was refused, or of its own
            return
        try:
            if self._decoder is not None:
                piece = self._decoder.decode(piece, self.body_bytes_max - self.held_bytes + 1)
            self.hold(len(piece))
            self._require_room(self.held_bytes)
        except GatewayError as refusal:
            self._refuse_in_turn(refusal)
            return
        self._buffer += piece

    def body_complete(self) -> None:
        """The body was read to its end: answer the request, if it has its turn."""
        self.is_whole = True
        if self._decoder is not None and self._refusal is None and not self._decoder.ended:
            self._refuse_in_turn(InvalidRequest("the compressed body has no end", code="bad_encoding"))
        if self._has_turn and not self._answer_started and self._refusal is None:
            self._start_answer()

    def client_disconnected(self) -> None:
        """The connection is lost: nobody reads a reply any more."""
        self.disconnected = not self.complete
        if self.disconnected:
            self._lose()  # at once: the client may ask again before this request's own work has ended
            if self._watcher is not None:
                self._watcher.cancel()
        if not self._answer_started:
            self.release()
            if self._has_turn and self.disconnected:
                self._door.record_disconnect(self)

    def _declared_bytes(self) -> int:
        return int(next((value for name, value in self.head.headers if name == b"content-length"), 0))

    def _require_room(self, body_bytes: int) -> None:
        """Raises BodyTooLarge, Overloaded for a body of this length, of which `held_bytes` are here already."""
        if body_bytes > self.body_bytes_max:
            raise BodyTooLarge(f"the body is over {self.body_bytes_max} bytes")
        if body_bytes and body_bytes - self.held_bytes > self._door.settings.held_bytes_max - self._door.held_bytes:
            raise Overloaded("the calls in flight hold all bytes they may", retry_after_s=1.0)

    def _start_answer(self) -> None:
        self._answer_started, self.started_s = True, time.perf_counter()
        self.body = bytes(self._buffer)
        self._buffer.clear()
        self._connection.start_task(self._door.answer(self))

    def _refuse_in_turn(self, refusal: GatewayError) -> None:
        """Refuse this request, as soon as its turn has come; what was read of its body, and what still comes, is dropped."""
        self._refusal = refusal
        self.release()
        if self._has_turn and not self.started:
            self._door.refuse(self, refusal)

    # For whoever answers

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
                raise  # another reason than the client
            here.uncancel()
            raise ClientGone from None
        finally:
            self._watcher = None

    def hold(self, size_bytes: int) -> None:
        """So much more is held for this request, until its `release`."""
        self.held_bytes += size_bytes
        self._door.held_bytes += size_bytes

    def finish(self) -> None:
        """Nothing more is written."""
        if self.status != 200 or not self.complete or self.is_cut_off:
            self._lose()
        self.on_lost = None

    def _lose(self) -> None:
        lose, self.on_lost = self.on_lost, None
        if lose is not None:
            lose()

    def release(self) -> None:
        """Nothing is held for this request any more. Idempotent."""
        self._door.held_bytes -= self.held_bytes
        self.held_bytes = 0
        self.body = b""
        self._buffer.clear()

    def reply_error(self, error: GatewayError, headers: HeaderList | None = None) -> None:
        """An error, with these headers besides its own, as its reply; the end of the connection where a reply is under way."""
        if self.started:
            self.abort()
            return
        path, own = self.head.path, self.head.headers
        body = error_body_for(path, own, error) if self.protocol is None else self.protocol.error(error)
        self.reply_now(error.status, [*error_headers(error), *(headers or ())], body)

    def _is_gone(self) -> bool:
        return self.disconnected  # a method, since type checkers take a field for unchanged over an await

"""The reply to one request, written straight to its client's connection.

Invariant: a reply is written once; a stream is ended only by `end`, else its connection closes.
"""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from claw_r1.gateway.errors import HeaderList

if TYPE_CHECKING:
    from claw_r1.gateway.http.connection import ClientConnection
    from claw_r1.gateway.http.request_parser import RequestHead

CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
CLOSE = (b"connection", b"close")
CHUNKED = b"transfer-encoding: chunked\r\n"
PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}


class ReplyWriter:
    """Writes a reply; what is written after the client has gone is dropped."""

    def __init__(self, connection: "ClientConnection", head: "RequestHead") -> None:
        self._connection, self.head = connection, head
        self.keep_alive = head.keep_alive
        """The connection stays when the reply is complete."""
        self.started = self.complete = self.disconnected = False
        self.status = self.sent_bytes = 0
        self.on_drained: Callable[[], None] | None = None
        """Called when the client reads as fast as we write again."""

    @property
    def congested(self) -> bool:
        """The client reads slower than we write."""
        return self._connection.flow.is_paused

    @property
    def is_cut_off(self) -> bool:
        """The client has gone and left much of what was written unread."""
        return self._connection.flow.is_cut_off

    async def drain(self) -> None:
        """Returns when what was written is on its way, or the client is gone."""
        await self._connection.flow.drain()

    async def reply(self, status: int, headers: HeaderList, body: bytes) -> None:
        """One whole reply."""
        await self._connection.flow.drain()  # of the replies before it
        self.reply_now(status, headers, body)

    def reply_now(self, status: int, headers: HeaderList, body: bytes) -> None:
        """Replies like `reply`, whether the client reads or not: for what is small."""
        if not self.disconnected:
            length = b"" if status == HTTPStatus.NOT_MODIFIED else b"content-length: %d\r\n" % len(body)
            head = self._written_head(status, headers, length)
            sent = b"" if self.head.method == b"HEAD" else body
            self.sent_bytes = len(sent)
            self._connection.transport.write(head + sent)
            self._complete()

    def start(self, status: int, headers: HeaderList) -> None:
        """The head of a stream."""
        if not self.disconnected:
            framing = CHUNKED if self.head.knows_chunks else b""
            self._connection.transport.write(self._written_head(status, headers, framing))

    def write(self, piece: bytes) -> None:
        """A piece of a stream."""
        if not self.disconnected:
            self.sent_bytes += len(piece)
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self.head.knows_chunks else piece)

    def end(self, piece: bytes) -> None:
        """The last piece of a stream."""
        if not self.disconnected:
            if piece:
                self.write(piece)
            if self.head.knows_chunks:
                self._connection.transport.write(b"0\r\n\r\n")
            self._complete()

    def abort(self) -> None:
        """Close the connection once what was written is sent: no client takes that for the end of a stream."""
        self._connection.transport.close()

    def _written_head(self, status: int, headers: HeaderList, framing: bytes) -> bytes:
        if CONTROL.search(b"".join([value for _, value in headers])):
            raise RuntimeError("a header must not hold control characters")
        common = self._connection.common_headers
        if not self.keep_alive and CLOSE not in common:
            common = [*common, CLOSE]
        self.keep_alive = CLOSE not in common
        self.started, self.status = True, status
        lines = [b"%b: %b\r\n" % header for header in (*common, *headers)]
        return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (status, PHRASES.get(status, b""), b"".join(lines), framing)

    def _complete(self) -> None:
        self.complete = True
        if not self.keep_alive:
            self._connection.transport.close()
        self._connection.reply_complete()

"""One HTTP/1.1 connection to an engine.

Invariant: a reply is either complete as its framing says (length, chunks, or the end of the connection where neither is
given) or it fails; it is never silently short. A connection is used again only when its reply was complete, nothing
followed it, and the engine keeps it open. Every wait has a deadline, every buffer a limit.
"""

import asyncio
import time
from collections.abc import Callable
from typing import cast

import httptools

from claw_r1.gateway.errors import GatewayError, UpstreamBroken, UpstreamTimeout
from claw_r1.gateway.upstream.incoming_reply import IncomingReply

UNPRODUCTIVE_BYTES_MAX = 64 << 10
"""Headers; then chunk extensions and trailers of a whole reply: more is an attack, or no HTTP."""
CHUNK_BYTES = 20
"""The bytes of the framing of a chunk: a length and two line ends. What is more are extensions."""


class UpstreamConnection(asyncio.Protocol):
    """A socket to an engine; one exchange at a time."""

    def __init__(self, reply_bytes_max: int, on_idle: Callable[["UpstreamConnection"], None]) -> None:
        self._reply_bytes_max, self._on_idle = reply_bytes_max, on_idle
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._deadline: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        """Monotonic time at which the timer fires."""
        self._reset()
        self.idle_since_s = 0.0

    def _reset(self) -> None:
        """Reset the state of the exchange before the next one."""
        self._reply: IncomingReply | None = None
        self._complete = self._keep_alive = self._framed = self._interim = False
        self._size = self._unproductive = 0
        self._timeout_s = self._begun_s = 0.0
        self._idle_s: float | None = None
        self._size_seen = -1
        self._parser = httptools.HttpResponseParser(self)
        self.has_reply_bytes = False
        """A byte of the reply has arrived."""

    def exchange(self, head: bytes, body: bytes, timeout_s: float) -> IncomingReply:
        """Send a request; its reply fills from now on."""
        assert self._transport is not None
        self._reset()
        reply = self._reply = IncomingReply(self)
        self._timeout_s, self._begun_s = timeout_s, time.monotonic()
        self._wake_in(timeout_s)
        self._transport.writelines((head, body))
        return reply

    @property
    def reusable(self) -> bool:
        """The next exchange may use this connection."""
        return self._reply is None and self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Close at once, whatever is under way."""
        self._disarm()
        if self._transport is not None:
            self._transport.abort()

    def pace(self, idle_s: float, total_s: float) -> None:
        """From now on, limit silence to `idle_s` (up to twice that) and the whole exchange to `total_s`."""
        self._timeout_s, self._idle_s = total_s, idle_s
        self._wake_in(min(idle_s, total_s))

    def pause(self) -> None:
        """Stop reading: the reader is slower than the engine."""
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again after `pause`. Idempotent."""
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports do not inherit from it

    def data_received(self, data: bytes) -> None:
        """Parse bytes of the reply. Bytes outside an exchange close the connection: nothing after them can be trusted."""
        reply = self._reply
        if reply is None:
            self.close()
            return
        self.has_reply_bytes = True
        self._unproductive += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._end(UpstreamBroken("the engine's reply is not HTTP/1.1"))
        except httptools.HttpParserUpgrade:
            self._end(UpstreamBroken("the engine switches protocols"))
        else:
            reply.flush()
            if self._complete:
                self._settle()
            elif self._unproductive > UNPRODUCTIVE_BYTES_MAX:
                self._end(UpstreamBroken("the engine's reply has too large headers"))

    def connection_lost(self, error: Exception | None) -> None:
        """The engine closed or broke the connection: the end of a reply without framing, a failure of any other."""
        unframed = self._reply is not None and self._reply.status and not self._framed and error is None
        self._end(None if unframed else UpstreamBroken("the connection to the engine broke"))
        self._transport = None

    # httptools' callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the reply. Trailers are ignored."""
        if self._reply is not None and not self._reply.status:
            self._reply.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The headers of the reply are complete. Interim replies (1xx) are skipped."""
        status, reply = self._parser.get_status_code(), self._reply
        self._interim = 100 <= status < 200
        if reply is None or self._complete:
            return
        if self._interim:
            reply.headers.clear()
            return
        if status < 100:
            self._end(UpstreamBroken("the engine's reply has no status"))
            return
        self._unproductive = 0
        self._framed = "content-length" in reply.headers or "transfer-encoding" in reply.headers or status in (204, 304)
        reply.status = status
        reply.wake()

    def on_body(self, piece: bytes) -> None:
        if self._complete:
            return
        self._unproductive = max(0, self._unproductive - len(piece))
        self._size += len(piece)
        if self._size > self._reply_bytes_max:
            too_large = f"the engine's reply is over {self._reply_bytes_max} bytes"
            self._end(UpstreamBroken(too_large, code="upstream_reply_too_large"))
        elif self._reply is not None:
            self._reply.feed(piece)

    def on_chunk_header(self) -> None:
        """A chunk begins, which takes more bytes than its body."""
        self._unproductive = max(0, self._unproductive - CHUNK_BYTES)

    def on_message_complete(self) -> None:
        """All of the reply is here; what follows it in the same bytes ends in the parser."""
        if not (self._interim or self._complete):
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()

    def on_message_begin(self) -> None:
        """A second reply to one request: the connection is closed as soon as the first reply is settled."""
        if self._complete:
            self._keep_alive = False

    def _settle(self) -> None:
        reply, self._reply = self._reply, None
        self.resume()
        if reply is not None:
            reply.finish()
        if self._keep_alive and self._framed and self.reusable:
            self._on_idle(self)
        else:
            self.close()

    def _end(self, error: GatewayError | None) -> None:
        """No more of this reply can come; a complete one stays good."""
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.finish(None if self._complete else error)
        self.close()

    def _check_deadlines(self) -> None:
        """Called by the connection's one timer, which an earlier exchange may have set: end what is late, else set it again."""
        self._deadline = None
        if self._reply is None:
            return
        left_s = self._begun_s + self._timeout_s - time.monotonic()
        if left_s <= 0:
            self._end(UpstreamTimeout(f"the engine did not end its answer within {self._timeout_s:g} s"))
        elif self._idle_s is None:
            self._wake_in(left_s)
        elif self._size == self._size_seen and not self._paused:
            self._end(UpstreamTimeout(f"the engine fell silent for {self._idle_s:g} s"))
        else:
            self._size_seen = self._size
            self._wake_in(min(left_s, self._idle_s))

    def _wake_in(self, wait_s: float) -> None:
        """Check the deadlines in `wait_s` at the latest; a timer that fires earlier sets itself again."""
        at_s = time.monotonic() + wait_s
        if self._deadline is not None and self._timer_s <= at_s:
            return
        self._disarm()
        self._deadline, self._timer_s = asyncio.get_running_loop().call_later(wait_s, self._check_deadlines), at_s

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

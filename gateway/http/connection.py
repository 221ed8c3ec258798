"""What a client may cost before its request is understood: bytes of headers, and time for each part.

Invariant: whoever is slower than the deadlines or larger than the limits loses its connection, and nobody else notices.
The HTTP parser has no limits of its own, so they are held where the bytes come in.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.errors import GatewayError, HeadersTooLarge, InvalidRequest, Overloaded, RequestTimeout, as_http
from gateway.http.access_log import REFUSED
from gateway.http.exchange import Exchange, Handler
from gateway.settings import GatewaySettings
from gateway.upstream.connection import CHUNK_BYTES

CALL_PATH_END = b"/chat/completions"
FRAMING = (b"content-length", b"transfer-encoding")
NO_UPGRADE = "send requests without an Upgrade header (Java: HttpClient.Version.HTTP_1_1)"
"""The parser takes the body of such a request for what follows the upgrade: for the next request, if we let it."""
SLICE_BYTES = 16 << 10
"""What the parser gets at once: its limits are looked at in between."""
WAITING_MAX = 8
"""Requests of a connection that wait for the one before them."""
CLOCK_S = 0.002
"""How much too early a timer may be."""
REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of one connection."""

    connections_max: int
    """Of one process."""
    headers_bytes_max: int
    headers_timeout_s: float
    """From the connection, or the first byte of a later request, to the end of its headers."""
    body_timeout_s: float
    """From there to the end of its body."""
    write_timeout_s: float
    """How long a client may leave our bytes unread once buffers are full."""


def limits_of(settings: GatewaySettings) -> ClientLimits:
    """The operator's limits."""
    return ClientLimits(
        connections_max=settings.connections_max,
        headers_bytes_max=settings.headers_bytes_max,
        headers_timeout_s=settings.headers_timeout_s,
        body_timeout_s=settings.body_timeout_s,
        write_timeout_s=settings.write_timeout_s,
    )


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's connection, with limits, and with a way of its own for model calls."""

    limits: ClientLimits
    calls: Handler

    def __init__(self, *given: Any, **named: Any) -> None:  # uvicorn's own arguments, passed through
        super().__init__(*given, **named)
        self._in_headers = True
        self._heard_headers = False
        self._unproductive = 0
        self._deadline_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._unread: asyncio.TimerHandle | None = None
        self._answering: Exchange | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """A connection that never asks is closed like one that never finishes asking."""
        super().connection_made(transport)
        self._arm(self.limits.headers_timeout_s)
        if len(self.connections) > self.limits.connections_max:
            self._refuse(Overloaded("too many connections", retry_after_s=1.0))

    def connection_lost(self, exc: Exception | None) -> None:
        """No timer outlives its connection."""
        self._disarm()
        if self._timer is not None:
            self._timer.cancel()
        if self._unread is not None:
            self._unread.cancel()
        cycles: list[object] = [self._answering, *(cycle for cycle, _ in self.pipeline)]
        for call in cycles:
            if isinstance(call, Exchange):
                call.gone()
        if self._call is not None:
            self.cycle = cast("RequestResponseCycle", None)  # as before the first request
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, but no more than the limit of what is neither a request nor body, nor what every chunk needs."""
        self._unset_keepalive_if_required()
        for at in range(0, len(data), SLICE_BYTES):
            if not self.transport.is_closing():
                self._take(data[at : at + SLICE_BYTES])

    def _take(self, data: bytes) -> None:
        self._unproductive += len(data)
        self._parse(data)
        if self._unproductive > self.limits.headers_bytes_max:
            self._refuse(HeadersTooLarge(f"headers are over {self.limits.headers_bytes_max} bytes"))
        elif self._unproductive and self._deadline_s is None and (self.cycle is None or self.cycle.response_complete):
            self._arm(self.limits.headers_timeout_s)  # line breaks before a request are no request yet

    def on_chunk_header(self) -> None:
        """A chunk begins, which takes more bytes than its body."""
        self._count_productive(CHUNK_BYTES)

    def _count_productive(self, count: int) -> None:
        self._unproductive = max(0, self._unproductive - count)

    def _parse(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and not self.transport.is_closing():
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as offer:  # which nobody takes up, so what follows is HTTP/1.1, too
                rest = rest[offer.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self._in_headers, self._heard_headers = True, False
        self._arm(self.limits.headers_timeout_s)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The request is handed over; its body may still be coming."""
        if self.transport.is_closing():  # what stands behind a refusal in the same packet
            return
        self._heard_headers = True
        self._unproductive = 0
        self._arm(self.limits.body_timeout_s)
        if sum(len(name) + len(value) + 4 for name, value in self.headers) > self.limits.headers_bytes_max:
            self._refuse(HeadersTooLarge(f"headers are over {self.limits.headers_bytes_max} bytes"))
            return
        if self.parser.should_upgrade() and any(name in FRAMING for name, _ in self.headers):
            self._refuse(InvalidRequest(NO_UPGRADE, code="upgrade_with_body"))
            return
        self._in_headers = False
        path = self._call_path()
        if path is None:
            super().on_headers_complete()
        else:
            self._on_call(path)
        self.headers = []  # trailers come after everybody has looked: nobody reads them

    def _on_call(self, path: bytes) -> None:
        before, is_old = self.cycle, self.parser.get_http_version() == "1.0"
        call = Exchange(
            self,
            self.calls,
            path=path,
            headers=self.headers,
            fixed=self.server_state.default_headers,
            keep_alive=not is_old and self.parser.should_keep_alive(),
            chunked=not is_old,
            expects_continue=self.expect_100_continue,
        )
        self.cycle = cast("RequestResponseCycle", call)  # what uvicorn asks of a cycle, it has
        if before is None or before.response_complete:
            self._answer(call)
        else:
            self.pipeline.appendleft((self.cycle, self.app))
            if len(self.pipeline) >= WAITING_MAX:  # below that we read on, so as to notice a client that leaves
                self.flow.pause_reading()

    def _call_path(self) -> bytes | None:
        """The undecoded path of a model call; None for any other request."""
        if CALL_PATH_END not in self.url or self.parser.get_method() != b"POST":
            return None
        path: bytes = httptools.parse_url(self.url).path or b""
        return path if path.endswith(CALL_PATH_END) and path.isascii() else None

    def _answer(self, call: Exchange) -> None:
        self._answering = call
        call.turn()

    @property
    def _call(self) -> Exchange | None:
        """The request being read, if it is a model call."""
        cycle: object = self.cycle
        return cycle if isinstance(cycle, Exchange) else None

    def _start_asgi_task(self, cycle: object, app: Any) -> None:  # uvicorn's own types, and ours
        if isinstance(cycle, Exchange):
            self._answering = cycle
            self.loop.call_soon(cycle.turn)  # not from within the reply before it: there may be thousands
        else:
            super()._start_asgi_task(cast("RequestResponseCycle", cycle), app)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a call as a task that a stop waits for."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def over(self) -> None:
        """A call's reply is complete."""
        self._answering = None
        self.on_response_complete()

    def on_response_complete(self) -> None:
        """The next request may be answered; more of them are read only where few wait, and replies are read."""
        super().on_response_complete()
        if not (self._reads_on() or self.transport.is_closing()):
            self.flow.pause_reading()

    def _reads_on(self) -> bool:
        return len(self.pipeline) < WAITING_MAX and not self.flow.write_paused

    def on_body(self, body: bytes) -> None:
        """Progress."""
        self._count_productive(len(body))
        if (call := self._call) is not None:
            call.feed(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The client has said everything."""
        self._unproductive = 0
        self._disarm()
        if (call := self._call) is not None:
            call.whole()
        else:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What the parser refuses, in the shape of every other error."""
        self._refuse(InvalidRequest(msg, code="invalid_http"))

    def pause_writing(self) -> None:
        """Buffers are full: the client reads slower than we write, so we read nothing more from it."""
        super().pause_writing()
        if not self.transport.is_closing():
            self.flow.pause_reading()
        if self._unread is None:
            self._unread_bytes = self.transport.get_write_buffer_size()
            self._unread = self.loop.call_later(self.limits.write_timeout_s, self._look_at_reader)

    def _look_at_reader(self) -> None:
        """A client that reads slowly gets more time; one that read nothing since the last look is cut off."""
        left = self.transport.get_write_buffer_size()
        if left >= self._unread_bytes:
            self.transport.abort()
            return
        self._unread_bytes = left
        self._unread = self.loop.call_later(self.limits.write_timeout_s, self._look_at_reader)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self._reads_on() and not self.transport.is_closing():
            self.flow.resume_reading()
        if self._answering is not None:
            self._answering.drained()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _arm(self, timeout_s: float) -> None:
        """A deadline for what comes next. One timer serves all of them: setting one for each costs more than it says."""
        self._deadline_s = self.loop.time() + timeout_s
        if self._timer is None or self._timer_s > self._deadline_s:
            self._set_timer(self._deadline_s)

    def _disarm(self) -> None:
        self._deadline_s = None

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_s = self.loop.call_at(at_s, self._look_at_clock), at_s

    def _look_at_clock(self) -> None:
        self._timer = None
        if self._deadline_s is None:
            return
        if self.loop.time() + CLOCK_S < self._deadline_s:
            self._set_timer(self._deadline_s)
        else:
            self._too_late()

    def _too_late(self) -> None:
        if self.flow.read_paused:  # a pipelined request waits for us, not we for it
            self._arm(self.limits.body_timeout_s)
            return
        if not (self._unproductive or self.cycle):  # it never said a word, so there is nothing to answer
            self.transport.close()
            return
        part = "headers" if self._in_headers else "body"
        self._refuse(RequestTimeout(f"the request's {part} did not come in time"))

    def _refuse(self, error: GatewayError) -> None:
        """Say why, where that cannot pass for another reply or a part of one, and close."""
        self._disarm()
        if self.transport is None or self.transport.is_closing():
            return
        if self._may_reply():
            reply = as_http(error)
            headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body)), (b"connection", b"close")]
            lines = [b"%b: %b" % header for header in headers]
            status = b"HTTP/1.1 %d %b" % (reply.status, REASONS[reply.status])
            self.transport.write(b"\r\n".join([status, *lines, b"", reply.body]))
            self._note_refusal(reply.status, len(reply.body))
        self.transport.close()

    def _may_reply(self) -> bool:
        """Whether it is the turn of the request at fault, and it has no reply yet."""
        if self.cycle is None or self.pipeline:
            return not self.pipeline
        return self.cycle.response_complete if self._in_headers else not self.cycle.response_started

    def _note_refusal(self, status: int, reply_bytes: int) -> None:
        method, path = "", b""
        if self._heard_headers:
            method = self.parser.get_method().decode("ascii", "replace")
            with suppress(httptools.HttpParserError):
                path = httptools.parse_url(self.url).path or b""
        if self.cycle is not None and self._call is None:
            cast("dict[str, object]", self.cycle.scope)[REFUSED] = True  # the application sees a client that left
        self.calls.refused(method, path, status, reply_bytes)


def limited(limits: ClientLimits, calls: Handler) -> type[LimitedProtocol]:
    """The protocol class for `uvicorn.Config(http=…)`, whose instances uvicorn makes by itself."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits, "calls": calls})

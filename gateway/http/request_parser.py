"""Bytes of a connection to requests, with limits that the HTTP parser itself does not have.

Invariant: of what is neither body nor what every chunk needs, a request may have `headers_bytes_max` bytes, however they
come, beside what is fed together with its head or its end; after the first error nothing of the connection is parsed any more.
"""

from typing import TYPE_CHECKING, NamedTuple

import httptools

from claw_r1.gateway.errors import HeaderList, HeadersTooLarge, InvalidRequest
from claw_r1.gateway.upstream.connection import CHUNK_BYTES

if TYPE_CHECKING:
    from claw_r1.gateway.http.connection import ClientConnection

FRAMING = (b"content-length", b"transfer-encoding")
NO_UPGRADE = "send requests without an Upgrade header (Java: HttpClient.Version.HTTP_1_1)"
"""The parser takes the body of such a request for what follows the upgrade: for the next request, if we let it."""


class RequestHead(NamedTuple):
    """A request without its body. One that was refused before its headers were read has no method and no path."""

    method: bytes = b""
    path: bytes = b""
    """The path as it was sent, in ASCII, without its query."""
    query: bytes = b""
    headers: HeaderList = []  # noqa: RUF012  # nobody changes it
    keep_alive: bool = False
    knows_chunks: bool = True
    """HTTP/1.0 does not."""
    expects_continue: bool = False


class RequestParser:
    """httptools' parser, whose callbacks (`on_…`) are methods of this object; tells a
    connection of its requests."""

    def __init__(self, connection: "ClientConnection", headers_bytes_max: int) -> None:
        self._connection, self._headers_bytes_max = connection, headers_bytes_max
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # pipelined behind `connection: close`
        self._overhead_bytes = 0
        """Neither body nor what every chunk needs, of the request that is being read."""
        self._url, self._headers = b"", HeaderList()
        self.head = RequestHead()
        """The head of the request that is being read, once its headers are here."""

    def feed(self, data: bytes) -> None:
        """Take what was received; the limits are looked at after it. Raises InvalidRequest, HeadersTooLarge."""
        self._overhead_bytes += len(data)
        self._parse(memoryview(data))
        self._require_short(self._overhead_bytes)

    def _parse(self, rest: memoryview) -> None:
        while rest:
            try:
                self._parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as offer:  # which nobody takes up, so what follows is HTTP/1.1, too
                rest = rest[offer.args[0] :]
            except httptools.HttpParserError as broken:
                cause = broken.__context__  # what a callback raised
                if cause is None or isinstance(cause, httptools.HttpParserError):
                    raise InvalidRequest("Invalid HTTP request received.", code="invalid_http") from broken
                raise cause from None

    def _require_short(self, headers_bytes: int) -> None:
        if headers_bytes > self._headers_bytes_max:
            raise HeadersTooLarge(f"headers are over {self._headers_bytes_max} bytes")

    def on_message_begin(self) -> None:
        self._url, self._headers, self.head = b"", [], RequestHead()
        self._connection.request_begins()

    def on_url(self, piece: bytes) -> None:
        self._url += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is here, or a trailer, which nobody reads."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Its headers are read; its body may still be coming. Raises HeadersTooLarge, InvalidRequest."""
        self._overhead_bytes = 0
        self.head = self._read_head()
        self._require_short(sum(len(name) + len(value) + 4 for name, value in self._headers))
        if self._parser.should_upgrade() and any(name in FRAMING for name, _ in self._headers):
            raise InvalidRequest(NO_UPGRADE, code="upgrade_with_body")
        self._headers = []
        self._connection.request_head(self.head)

    def _read_head(self) -> RequestHead:
        url, is_old = httptools.parse_url(self._url), self._parser.get_http_version() == "1.0"
        if not (url.path and url.path.isascii()):
            raise InvalidRequest("Invalid HTTP request received.", code="invalid_http")
        return RequestHead(
            method=self._parser.get_method(),
            path=url.path,
            query=url.query or b"",
            headers=self._headers,
            keep_alive=not is_old and self._parser.should_keep_alive(),
            knows_chunks=not is_old,
            expects_continue=any(
                name == b"expect" and value.lower() == b"100-continue" for name, value in self._headers
            ),
        )

    def on_chunk_header(self) -> None:
        """A chunk begins, which takes more bytes than its body."""
        self._overhead_bytes = max(0, self._overhead_bytes - CHUNK_BYTES)

    def on_body(self, piece: bytes) -> None:
        self._overhead_bytes = max(0, self._overhead_bytes - len(piece))
        self._connection.request_body(piece)

    def on_message_complete(self) -> None:
        self._overhead_bytes = 0
        self._connection.request_ends()

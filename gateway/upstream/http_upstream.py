"""The client for engines: HTTP/1.1 exchanges over pooled connections, with deadlines, and errors of three kinds.

Invariant: giving up an exchange closes its connection, and the engine then aborts the generation. Nothing of the
client's request but the body and the named headers is sent. Why not a library: docs/adr/0006-the-upstream-client.md.
"""

import asyncio
import errno
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

from claw_r1.gateway.errors import InvalidRequest, Overloaded, UpstreamBroken, UpstreamUnreachable
from claw_r1.gateway.upstream.connection import UpstreamConnection
from claw_r1.gateway.upstream.incoming_reply import IncomingReply

KEEPALIVE_S = 3.0  # below uvicorn's 5 s: a connection that the engine is just closing would look like a broken engine
SWEEP_S = 0.5
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors that mean that the gateway is out of resources, not that the engine is away."""
Origin = tuple[str, int, bool]


class UpstreamReply(NamedTuple):
    """The reply of an engine."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    """Names in lower case."""


@dataclass(frozen=True, slots=True)
class UpstreamTarget:
    """An engine's URL in the parts that a request needs."""

    origin: Origin
    path: str
    host: str


class HttpUpstream:
    """Pooled HTTP connections to engines. An async context manager, which closes those that are idle."""

    def __init__(self, connect_timeout_s: float, timeout_s: float, reply_bytes_max: int) -> None:
        self._connect_timeout_s, self._timeout_s, self._reply_bytes_max = connect_timeout_s, timeout_s, reply_bytes_max
        self._idle: dict[Origin, list[UpstreamConnection]] = {}
        self._closed = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> "HttpUpstream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for origin in list(self._idle):
            self._close_idle(origin)

    @property
    def idle_connections(self) -> dict[Origin, int]:
        """The number of connections that wait for their next call."""
        return {origin: len(idle) for origin, idle in self._idle.items()}

    async def get(self, url: str, headers: Mapping[str, str]) -> UpstreamReply:
        """The whole reply. Raises as `send`, UpstreamBroken or UpstreamTimeout."""
        return await whole(await self.send("GET", url, None, headers))

    async def send(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> IncomingReply:
        """One request; returns when the reply's headers are here. Cancelling closes the connection.

        Raises UpstreamUnreachable (the engine never had it), UpstreamBroken (it may have had it) or UpstreamTimeout.
        """
        target = target_of(url)
        head = request_head(method, target, body, headers)
        connection = self._pooled(target.origin)
        if connection is not None:
            try:
                return await connection.exchange(head, body or b"", self._timeout_s).started()
            except UpstreamBroken:
                if connection.has_reply_bytes:
                    raise
            # The engine closed an idle connection while our request was on its way; a fresh one tells that from a crash.
            self._close_idle(target.origin)
        try:
            fresh = await self._connect(target.origin)
        except UpstreamUnreachable as error:
            if connection is None:
                raise
            raise UpstreamBroken("the engine closed the connection and accepts no new one") from error
        return await fresh.exchange(head, body or b"", self._timeout_s).started()

    async def _connect(self, origin: Origin) -> UpstreamConnection:
        host, port, secure = origin
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: UpstreamConnection(self._reply_bytes_max, partial(self._give_back, origin)),
                    host,
                    port,
                    ssl=self._context() if secure else None,
                )
        except TimeoutError as error:
            raise UpstreamUnreachable("the engine does not accept connections in time") from error
        except UnicodeError as error:  # a host with an empty or an overlong label
            raise UpstreamUnreachable("the engine's address names no host") from error
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise Overloaded(f"the gateway is out of resources: {error.strerror}", retry_after_s=1.0) from error
            raise UpstreamUnreachable(f"the engine does not accept connections: {error.strerror}") from error
        return connection

    def _context(self) -> ssl.SSLContext:
        self._tls = self._tls or ssl.create_default_context()
        return self._tls

    def _pooled(self, origin: Origin) -> UpstreamConnection | None:
        """The connection used last, whose engine is the least likely to have closed it."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.reusable:
                return connection
        return None

    def _give_back(self, origin: Origin, connection: UpstreamConnection) -> None:
        if self._closed:
            connection.close()
            return
        connection.idle_since_s = time.monotonic()
        self._idle.setdefault(origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were idle for about `KEEPALIVE_S`, and those that the engine closed."""
        oldest_s = time.monotonic() - KEEPALIVE_S + SWEEP_S
        for origin, idle in list(self._idle.items()):
            fresh = [connection for connection in idle if connection.idle_since_s >= oldest_s and connection.reusable]
            for connection in set(idle).difference(fresh):
                connection.close()
            self._idle[origin] = fresh
            if not fresh:
                del self._idle[origin]
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep) if self._idle else None

    def _close_idle(self, origin: Origin) -> None:
        for connection in self._idle.pop(origin, []):
            connection.close()


async def whole(reply: IncomingReply) -> UpstreamReply:
    """A reply, read to its end. Raises UpstreamBroken or UpstreamTimeout."""
    async with reply:
        return UpstreamReply(reply.status, await reply.read(), reply.headers)


@lru_cache(maxsize=4096)
def target_of(url: str) -> UpstreamTarget:
    """A URL, taken apart. Raises UpstreamUnreachable for a URL that names no HTTP server."""
    try:
        parts = urlsplit(url)
        secure, port = parts.scheme == "https", parts.port
    except ValueError as error:
        raise UpstreamUnreachable("the engine's address is not a URL") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UpstreamUnreachable("the engine's address is no http:// URL")
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    host = parts.netloc.rpartition("@")[2]
    return UpstreamTarget((parts.hostname, port or (443 if secure else 80), secure), path, host)


def request_head(method: str, target: UpstreamTarget, body: bytes | None, headers: Mapping[str, str]) -> bytes:
    """Request line and headers. Raises InvalidRequest for a value that would end its line."""
    lines = [f"{method} {target.path} HTTP/1.1", f"host: {target.host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or "\0" in head:
        raise InvalidRequest("a header must not hold line breaks or NUL")
    return f"{head}\r\n\r\n".encode("latin-1", "replace")

"""A reply of an engine as it arrives: read whole, or handed on piece by piece.

Invariant: what arrives is either complete or fails; nothing waits for a reader beyond a limit.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import structlog

from claw_r1.gateway.errors import GatewayError, UpstreamBroken

if TYPE_CHECKING:
    from claw_r1.gateway.upstream.connection import UpstreamConnection

log = structlog.get_logger()
Sink = Callable[[bytes], bool]
"""Takes a piece of body; False: no more. May raise GatewayError, which ends the exchange."""
BUFFER_BYTES_MAX = 256 << 10
"""The most bytes that wait for a reader before the engine has to slow down."""


class IncomingReply:
    """The reply of an engine, as it arrives. Filled by its connection; read once: whole, or first piece and relay.

    A reply that is not read to its end is aborted (an async context manager sees to it), which closes its connection;
    the engine then stops generating.
    """

    def __init__(self, connection: "UpstreamConnection") -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case."""
        self.over = False
        self.error: GatewayError | None = None
        self._connection: UpstreamConnection | None = connection
        """None once the reply is over: another one may be arriving on it."""
        self._arrived: list[bytes] = []
        self._buffered = 0
        self._whole = False
        self._sink: Sink | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()

    async def started(self) -> Self:
        """Returns when the headers are here. Raises what the exchange failed with, and is given up by whoever cancels it."""
        try:
            while not (self.status or self.over):
                await self._wait()
        except BaseException:
            self.abort()
            raise
        if self.error and not self.status:
            raise self.error
        return self

    async def first(self) -> bytes:
        """The first piece of body; nothing when there is none. Raises as `read`."""
        while not (self._arrived or self.over):
            await self._wait()
        if not self._arrived and self.error:
            raise self.error
        return self._take()

    async def relay(self, sink: Sink) -> None:
        """Hand the body to `sink` as it arrives, in the same turn of the loop, until it ends or `sink` says so.

        Raises as `read`, or what `sink` raised.
        """
        self._sink = sink
        self.resume()
        self.flush()
        while not self.over and self._sink is not None:
            await self._wait()
        self.flush()
        self._sink = None
        if self.error:
            raise self.error

    def flush(self) -> None:
        """Hand over what has arrived, if somebody takes it as it comes."""
        if self._sink is None or not self._arrived:
            return
        arrived, self._arrived, self._buffered = self._arrived, [], 0
        try:
            more = self._sink(arrived[0] if len(arrived) == 1 else b"".join(arrived))
        except Exception as broken:  # a bug must not look like an engine that broke
            refused = broken if isinstance(broken, GatewayError) else GatewayError("internal error")
            if refused is not broken:
                log.exception("bug_in_sink")
            self._give_up(refused)
            self.error = refused
            return
        if not more:
            self._sink = None
            self.wake()

    def pace(self, idle_s: float, total_s: float) -> None:
        """Set the deadline to `total_s` from the request, and take `idle_s` (to twice that) without body for a timeout."""
        if self._connection:
            self._connection.pace(idle_s, total_s)

    def pause(self) -> None:
        """Let the engine wait."""
        if self._connection:
            self._connection.pause()

    def resume(self) -> None:
        """Take more from it. Idempotent."""
        if self._connection:
            self._connection.resume()

    async def read(self) -> bytes:
        """The whole body. Raises UpstreamBroken (also when it is over its limit) or UpstreamTimeout."""
        self._whole = True
        if self._connection:
            self._connection.resume()
        while not self.over:
            await self._wait()
        if self.error:
            raise self.error
        return self._take()

    def abort(self) -> None:
        """Close the connection if the reply is not over. Idempotent."""
        self._give_up(UpstreamBroken("the exchange was given up"))

    def feed(self, piece: bytes) -> None:
        self._arrived.append(piece)
        self._buffered += len(piece)
        if not (self._whole or self._sink):
            if self._buffered > BUFFER_BYTES_MAX and self._connection:
                self._connection.pause()
            self.wake()

    def finish(self, error: GatewayError | None = None) -> None:
        """The reply is over; only the first call counts."""
        if not self.over:
            self.over, self.error, self._connection = True, error, None
            self.wake()

    def wake(self) -> None:
        """Let the reader look again."""
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _give_up(self, error: GatewayError) -> None:
        connection = self._connection
        self.finish(error)
        if connection:
            connection.close()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _take(self) -> bytes:
        arrived, self._arrived, self._buffered = self._arrived, [], 0
        if self._connection:
            self._connection.resume()
        return arrived[0] if len(arrived) == 1 else b"".join(arrived)

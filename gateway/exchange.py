"""What a room needs of the client for engines: a reply that is still arriving, and the one way to ask for it.

Invariant: an exchange that is not read to its end is aborted, which closes its connection; the engine then stops
generating.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

Sink = Callable[[bytes], bool]
"""Takes a piece of body; False: no more. May raise GatewayError, which ends the exchange."""


class Exchange(Protocol):
    """A reply whose headers are here. An async context manager: leaving it early is `abort`."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, in pieces as the socket gave them. Raises UpstreamBroken or UpstreamTimeout."""
        ...

    async def relay(self, sink: Sink) -> None:
        """Hand the body to `sink` as it arrives, until it ends or `sink` says so. Raises as `chunks`, or what `sink` raised."""
        ...

    def pace(self, idle_s: float, total_s: float) -> None:
        """From now on the deadline is `total_s` from the request, and no piece of body within `idle_s` (to twice that) is a timeout."""
        ...

    def pause(self) -> None:
        """Let the engine wait."""
        ...

    def resume(self) -> None:
        """Take more from it. Idempotent."""
        ...

    async def read(self) -> bytes:
        """The whole body. Raises UpstreamBroken (also when it is over its limit) or UpstreamTimeout."""
        ...

    def abort(self) -> None:
        """Close the connection if the reply is not over. Idempotent."""
        ...

    async def __aenter__(self) -> "Exchange": ...

    async def __aexit__(self, *_: object) -> None: ...


class Upstream(Protocol):
    """A client for engines."""

    async def send(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Exchange:
        """One request; returns when the reply's headers are here. Cancelling it closes the connection.

        Raises UpstreamUnreachable (the engine never had it), UpstreamBroken (it may have had it) or UpstreamTimeout.
        """
        ...

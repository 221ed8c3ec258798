"""The fate of a client that reads its replies more slowly than they are written."""

import asyncio


class WriteFlow:
    """The flow of a connection, whose buffers may be full: a client that reads nothing for a
    whole period is cut off."""

    def __init__(self, loop: asyncio.AbstractEventLoop, period_s: float) -> None:
        self._loop, self._period_s = loop, period_s
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self.is_paused = self.is_cut_off = False

    async def drain(self) -> None:
        """Returns when the client reads as fast as we write, or is gone."""
        if self.is_paused:
            await self._writable.wait()

    def pause(self, transport: asyncio.Transport) -> None:
        """The transport's buffers are full."""
        self.is_paused = True
        self._writable.clear()
        self._watch(transport)

    def resume(self) -> None:
        """The client has read enough."""
        self.is_paused = False
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """The client is gone."""
        self.is_cut_off = self.is_paused
        self.resume()

    def _watch(self, transport: asyncio.Transport) -> None:
        unread_bytes = transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._period_s, self._look, transport, unread_bytes)

    def _look(self, transport: asyncio.Transport, unread_bytes: int) -> None:
        if transport.get_write_buffer_size() >= unread_bytes:
            transport.abort()
        else:
            self._watch(transport)

"""A Kubernetes Service in small: one address, behind which processes come and go."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator

LAG_S = 2.0
"""How long connections are still sent to a pod that is being stopped: kube-proxy
hears of it by way of the API server."""


class Service:
    """Passes new connections to the members in turn, and bytes as they are; a
    connection stays with its member."""

    def __init__(self) -> None:
        self.members: list[int] = []
        """Ports. Whoever takes one away waits `LAG_S` before it counts, as a
        cluster does."""
        self.refused = 0
        """Connections that a member did not take."""
        self._turn = itertools.count()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        port = self.members[next(self._turn) % len(self.members)]
        try:
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            self.refused += 1
            writer.close()
            return
        await asyncio.gather(_pass(reader, back_writer), _pass(back_reader, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


@contextlib.contextmanager
def in_front(service: Service) -> Iterator[str]:
    """The URL of the service, which a thread serves meanwhile."""
    loop = asyncio.new_event_loop()
    listening = loop.run_until_complete(asyncio.start_server(service.take, "127.0.0.1", 0, backlog=1024))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.run_until_complete(_end(loop))
        loop.close()


async def _end(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop) - {asyncio.current_task()}:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

"""The changes, sent to every open page: one server-sent stream.

Invariant: an update is made once and its bytes go to all readers; a reader that comes back with the id it saw last gets
everything after it exactly once, or is told (`again`) to read anew. Nobody waits for a slow reader: it is cut off and comes back.
"""

import asyncio
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import islice

from fastapi import APIRouter, Request
from starlette.responses import StreamingResponse

from claw_r1.consumers.web.problems import SafeJson
from claw_r1.consumers.web.sessions import Looking, PageSessions

INTERVAL_S = 0.25
KEPT = 2400
"""Updates that a reader who comes back may have missed: ten minutes of them."""
BEHIND_MAX = 64
"""Updates that may wait for one reader."""
KEPT_BYTES = 16_000_000
IDS_MAX = 400
"""Ids per kind of one update; where more changed, it says that many did."""
SILENCE_S = 15.0
"""After so long without an update a reader hears a comment, and its session is looked at."""


class LiveStream:
    """Changes come from any thread; `run` and readers belong to the event loop."""

    def __init__(self) -> None:
        self._epoch = secrets.token_hex(4)
        self._changes: dict[str, dict[tuple[str, ...], None]] = {}
        self._lock = threading.Lock()
        self._number = 0
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._readers: set[asyncio.Queue[bytes | None]] = set()

    @property
    def readers(self) -> int:
        """The number of open pages that follow."""
        return len(self._readers)

    @property
    def position(self) -> str:
        """The id of the newest update: who reads now and follows from there misses nothing."""
        return f"{self._epoch}-{self._number}"

    def changed(self, kind: str, *ids: str) -> None:
        """A row of that kind is new or another one. From any thread."""
        with self._lock:
            self._changes.setdefault(kind, {})[ids] = None

    async def run(self) -> None:
        """Tells what changed, at most four times a second, until it is cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.tell()

    def tell(self) -> None:
        """One update of all that changed since the last one; without a change, none."""
        with self._lock:
            changes, self._changes = self._changes, {}
        if not changes:
            return
        self._number += 1
        kinds = {kind: list(ids) if len(ids) <= IDS_MAX else None for kind, ids in changes.items()}
        update = self._event("changed", SafeJson(kinds).body)
        self._kept.append(update)
        self._kept_bytes += len(update)
        while len(self._kept) > KEPT or self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft())
        for reader in list(self._readers):
            if reader.qsize() < BEHIND_MAX:
                reader.put_nowait(update)
            else:
                self._readers.remove(reader)
                reader.put_nowait(None)

    async def read(self, last_seen: str | None, is_good: Callable[[], bool] = lambda: True) -> AsyncIterator[bytes]:
        """Bytes for one reader. last_seen: id of the last update that it had. is_good: whether it may still listen."""
        reader: asyncio.Queue[bytes | None] = asyncio.Queue()
        missed = self._missed(last_seen)
        first = self._event("ready" if missed is not None or last_seen is None else "again", b"{}")
        self._readers.add(reader)  # before the first yield: nothing falls between
        try:
            for each in (*(missed or ()), first):
                yield each
            while is_good():
                try:
                    update = await asyncio.wait_for(reader.get(), SILENCE_S)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if update is None:
                    return
                yield update
        finally:
            self._readers.discard(reader)

    def _event(self, name: str, data: bytes | memoryview) -> bytes:
        return b"id: %s\nevent: %s\ndata: %s\n\n" % (self.position.encode(), name.encode(), bytes(data))

    def _missed(self, last_seen: str | None) -> list[bytes] | None:
        """Updates after that id; None where it is none of this process, or too old."""
        epoch, _, number = (last_seen or "").partition("-")
        if epoch != self._epoch or not number.isdecimal():
            return None
        count = self._number - int(number)
        if not 0 <= count <= len(self._kept):
            return None
        return list(islice(self._kept, len(self._kept) - count, None))


def stream_routes(stream: LiveStream) -> APIRouter:
    """GET /api/v1/live"""
    routes = APIRouter(prefix="/api/v1", tags=["live"])

    @routes.get(
        "/live", summary="Server-sent events: ids of the rows that changed, by kind. Resumes after Last-Event-ID."
    )
    async def live(request: Request, session: Looking, after: str | None = None) -> StreamingResponse:
        """after: as Last-Event-ID, for a client that cannot set the header."""
        sessions: PageSessions = request.app.state.sessions
        last_seen = request.headers.get("last-event-id", after)
        updates = stream.read(last_seen, lambda: sessions.of(request) is session)
        return StreamingResponse(updates, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    return routes

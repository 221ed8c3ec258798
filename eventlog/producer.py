"""Publishing facts: at least once, acknowledged by all in-sync replicas before anyone is told.

Invariant: a returned position means the record is in the log. NotAcknowledged means *unknown*: the record may still
arrive, so retry it with the same event_id. A full queue makes the caller wait; nothing is ever dropped silently.
"""

import asyncio
import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

import structlog

from eventlog.errors import NotAcknowledged
from eventlog.records import Outgoing, Position
from eventlog.session import Outcome, Session
from eventlog.settings import LogSettings
from schemas.events import Event
from schemas.topics import Topic

log = structlog.get_logger()

Arrivals = list[tuple[asyncio.Future[Position], Outcome]]
POLL_S = 0.1
ROOM_POLL_S = 0.002


class EventProducer:
    """One idempotent producer and the thread that serves its acknowledgements. Thread-safe."""

    def __init__(self, settings: LogSettings, open_session: Callable[[LogSettings], Session] = Session) -> None:
        self._settings = settings
        self._open_session = open_session
        self._arrivals: Arrivals = []
        self._closing = threading.Event()
        self._session = open_session(settings)
        self._poller = threading.Thread(target=self._serve, name="claw-log-acks", daemon=True)
        self._poller.start()

    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position:
        """Returns when the log has the event. Raises NotAcknowledged, RecordTooLarge or TopicMissing."""
        return await (await self._send_soon(Outgoing.of(topic, key, event)))

    async def publish_all(self, items: Sequence[Outgoing]) -> list[Position]:
        """All at once, in the given order within a partition. Raises the first failure after all have an outcome."""
        sent = [await self._send_soon(item) for item in items]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        return [_position(outcome) for outcome in outcomes]

    def publish_now(self, topic: Topic, key: bytes, event: Event) -> Position:
        """`publish` for threads: blocks until acknowledged."""
        return self.produce(Outgoing.of(topic, key, event)).result()

    def produce(self, item: Outgoing) -> Future[Position]:
        """Queues a record; waits only while the queue is full. Failures, too, are in the future."""
        future: Future[Position] = Future()
        settle = partial(_settle_future, future)
        deadline = self._deadline()
        while not self._session.offer(item, settle):
            if time.monotonic() > deadline:
                settle(_queue_full())
                break
            time.sleep(ROOM_POLL_S)
        return future

    def close(self, timeout_s: float = 10) -> None:
        """Waits up to `timeout_s` for outstanding acknowledgements, fails the rest, ends the thread. Idempotent."""
        if self._closing.is_set():
            return
        if left := self._session.flush(timeout_s):
            log.warning("log_records_not_acknowledged_at_close", records=left)
        self._closing.set()
        self._poller.join()

    async def _send_soon(self, item: Outgoing) -> asyncio.Future[Position]:
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        settle = partial(self._arrive, future)
        deadline = self._deadline()
        while not self._session.offer(item, settle):
            if time.monotonic() > deadline:
                settle(_queue_full())
                break
            await asyncio.sleep(ROOM_POLL_S)
        return future

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.ack_timeout_ms / 1000

    def _arrive(self, future: asyncio.Future[Position], outcome: Outcome) -> None:
        """Runs in the thread that polls, or in another one when a record is refused at once or at the end."""
        if threading.current_thread() is self._poller:
            self._arrivals.append((future, outcome))
        else:
            _call_soon(future.get_loop(), [(future, outcome)])

    def _serve(self) -> None:
        while not self._closing.is_set():
            alive = self._session.poll(POLL_S)
            if not alive:
                dead, self._session = self._session, self._open_session(self._settings)
                dead.end()
            self._hand_over()
        self._session.end()
        self._hand_over()

    def _hand_over(self) -> None:
        """One wake-up per event loop and poll, however many acknowledgements came."""
        arrivals, self._arrivals = self._arrivals, []
        by_loop: dict[asyncio.AbstractEventLoop, Arrivals] = defaultdict(list)
        for future, outcome in arrivals:
            by_loop[future.get_loop()].append((future, outcome))
        for loop, batch in by_loop.items():
            _call_soon(loop, batch)


def _settle_future(future: Future[Position], outcome: Outcome) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Position):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)


def _call_soon(loop: asyncio.AbstractEventLoop, batch: Arrivals) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
        loop.call_soon_threadsafe(_settle_asyncio, batch)


def _settle_asyncio(batch: Arrivals) -> None:
    for future, outcome in batch:
        if future.done():  # the caller was cancelled; the record stands all the same
            continue
        if isinstance(outcome, Position):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)


def _position(outcome: Position | BaseException) -> Position:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _queue_full() -> NotAcknowledged:
    return NotAcknowledged("the queue to the log stayed full")

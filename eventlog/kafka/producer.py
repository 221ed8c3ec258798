"""Publishing facts: at least once, acknowledged by all in-sync replicas before anyone is told.

Invariant: a returned position means the record is in the log. NotAcknowledged means *unknown*: the record may still
arrive, so retry it with the same event_id. A full queue makes the caller wait; nothing is ever dropped silently.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

import structlog

from claw_r1.eventlog.errors import NotAcknowledged
from claw_r1.eventlog.kafka.session import Delivery, Session
from claw_r1.eventlog.records import Outgoing, Position
from claw_r1.eventlog.security import SecretsWatch
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import Event
from claw_r1.schemas.topics import Topic

log = structlog.get_logger()

POLL_S = 0.1
TICK_S = 0.001
ROOM_POLL_S = 0.002


class EventProducer:
    """One idempotent producer. Thread-safe.

    Acknowledgements for an event loop are served on that loop, every millisecond while it waits for one: a thread that
    is woken for each of them fights with the loop for the interpreter. Those for threads are served by a thread, which
    also finds out that the client died.
    """

    def __init__(self, settings: LogSettings, open_session: Callable[[LogSettings], Session] = Session) -> None:
        self._settings = settings
        self._open_session = open_session
        self._ticking: set[asyncio.AbstractEventLoop] = set()
        self._blocked: set[Future[Position]] = set()
        self._asked, self._closing = threading.Event(), threading.Event()
        self._dead: Session | None = None
        self._secrets = SecretsWatch(settings)
        self._session = open_session(settings)
        self._poller = threading.Thread(target=self._serve, name="claw-log-acks", daemon=True)
        self._poller.start()

    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position:
        """Returns when the log has the event. Raises NotAcknowledged, RecordTooLarge or TopicMissing."""
        item = Outgoing.of(topic, key, event)
        return await (self._send_now(item) or await self._send_soon(item))

    async def publish_all(self, items: Sequence[Outgoing]) -> list[Position]:
        """All at once, in the given order within a partition. Raises the first failure after all have an outcome."""
        sent = [self._send_now(item) or await self._send_soon(item) for item in items]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        return [_position(outcome) for outcome in outcomes]

    def publish_now(self, topic: Topic, key: bytes, event: Event) -> Position:
        """`publish` for threads: blocks until acknowledged."""
        return self.produce(Outgoing.of(topic, key, event)).result()

    def produce(self, item: Outgoing) -> Future[Position]:
        """Queues a record; waits only while the queue is full. Failures, too, are in the future."""
        future: Future[Position] = Future()
        report = partial(self._unblock, future)
        deadline = self._deadline()
        self._blocked.add(future)
        self._asked.set()
        while not self._session.enqueue(item, report):
            if time.monotonic() > deadline:
                report(_queue_full())
                break
            time.sleep(ROOM_POLL_S)
        return future

    def close(self, timeout_s: float = 10) -> None:
        """Waits up to `timeout_s` for outstanding acknowledgements, fails the rest, ends the thread. Idempotent."""
        if self._closing.is_set():
            return
        if outstanding := self._session.flush(timeout_s):
            log.warning("log_records_not_acknowledged_at_close", records=outstanding)
        self._closing.set()
        self._asked.set()
        self._poller.join()

    def _send_now(self, item: Outgoing) -> asyncio.Future[Position] | None:
        """The future of an answer on the running loop; None while the queue is full."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Position] = loop.create_future()
        if not self._session.enqueue(item, partial(_arrive, future)):
            return None
        if loop not in self._ticking:
            self._ticking.add(loop)
            loop.call_later(TICK_S, self._tick, loop)
        return future

    async def _send_soon(self, item: Outgoing) -> asyncio.Future[Position]:
        """Sends like `_send_now`, once there is room; else the future fails."""
        deadline = self._deadline()
        while (sent := self._send_now(item)) is None:
            if time.monotonic() > deadline:
                sent = asyncio.get_running_loop().create_future()
                sent.set_exception(_queue_full())
                break
            await asyncio.sleep(ROOM_POLL_S)
        return sent

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.ack_timeout_ms / 1000

    def _unblock(self, future: Future[Position], outcome: Delivery) -> None:
        self._blocked.discard(future)
        if future.set_running_or_notify_cancel():
            _settle(future, outcome)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        session = self._session
        if not session.poll(0):
            self._dead = session
            self._asked.set()
        if session.owes:
            loop.call_later(TICK_S, self._tick, loop)
        else:
            self._ticking.discard(loop)

    def _serve(self) -> None:
        while not self._closing.is_set():
            if not self._blocked:
                self._asked.wait(POLL_S)
                self._asked.clear()
            alive = self._session.poll(POLL_S if self._blocked else 0)
            if not alive or self._dead is self._session:
                dead, self._session = self._session, self._open_session(self._settings)
                dead.end()
            elif self._secrets.changed():  # certificates are read when a client is made
                former, self._session = self._session, self._open_session(self._settings)
                former.flush(self._settings.ack_timeout_ms / 1000)
                former.end()
        self._session.end()


def _arrive(future: asyncio.Future[Position], outcome: Delivery) -> None:
    """Runs on the future's loop, or in a thread: the one that polls, or one where a record is refused or the end."""
    loop = future.get_loop()
    if asyncio._get_running_loop() is loop:
        _land(future, outcome)
    else:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_land, future, outcome)


def _land(future: asyncio.Future[Position], outcome: Delivery) -> None:
    if not future.done():  # else the caller was cancelled; the record stands all the same
        _settle(future, outcome)


def _settle(future: Future[Position] | asyncio.Future[Position], outcome: Delivery) -> None:
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

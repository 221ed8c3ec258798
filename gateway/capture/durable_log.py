"""The seam between capture and the log: an event is stored when Kafka acknowledged it or the local spool has it fsynced.

Invariant: `publish` returns only for a stored event, the same event (same event_id) wherever it went. A fact that is no
call goes through the spool while the spool holds anything of its group, behind it; so in the log a completion stands
after every call that was acknowledged before it. While the log is known to be away nobody waits for it.

The one exception is the operator's choice: with `capture_on_failure=availability`, a captured call that neither takes
is counted in `claw_capture_lost_total`, and its client gets its reply.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from claw_r1.eventlog.errors import LogError, RecordTooLarge, SpoolFull
from claw_r1.eventlog.protocols import Producer
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.spool.drain import Drainer
from claw_r1.eventlog.spool.spool import Spool
from claw_r1.gateway.metrics import Metrics
from claw_r1.gateway.settings import GatewaySettings
from claw_r1.schemas.events import CallCaptured, CallFailed, Event
from claw_r1.schemas.topics import Topic

PROBE_EVERY_S = 1.0
QUIET_PROBE_EVERY_S = 5.0
STOP_TIMEOUT_S = 1.0
FLUSH_TIMEOUT_S = 10.0
log = structlog.get_logger()


class EventSink(Protocol):
    """The sink for the events of this room: a DurableLog, or a producer alone."""

    async def publish(self, topic: Topic, key: bytes, event: Event) -> object:
        """Returns once the event is stored, whatever it returns. Raises claw_r1.eventlog.errors.LogError."""


class DurableLog:
    """The log with the spool behind it. Owns both: `close` ends them."""

    def __init__(
        self,
        producer: Producer,
        spool: Spool,
        settings: GatewaySettings,
        metrics: Metrics,
        *,
        log_answers: Callable[[], bool] = lambda: True,
        on_error: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self._producer, self._spool, self._metrics = producer, spool, metrics
        self._spool_timeout_s = settings.spool_timeout_s
        self._available = settings.capture_on_failure == "availability"
        self._log_answers = log_answers
        self._drainer = Drainer(spool, producer.produce, on_error)
        self._refusing = self._unheard = False
        self._ending = threading.Event()
        metrics.observe_spool(spool.stats, lambda: self.away)

    def start(self, is_quiet: Callable[[], bool] = lambda: False) -> None:
        """Start to drain what the spool holds. is_quiet: whether nothing comes out of the log of what always should."""
        self._drainer.start()
        threading.Thread(target=self._probe, args=(is_quiet,), name="claw-store-watch", daemon=True).start()

    @property
    def away(self) -> bool:
        """The log does not reply, so that events go to the spool."""
        return self._drainer.away

    @property
    def unheard(self) -> bool:
        """Nothing comes out of the log, also where nothing had to go in since it went away."""
        return self._unheard or self.away

    @property
    def broken(self) -> bool:
        """Draining ended by a bug: the process has to be started again."""
        return self._drainer.error is not None

    def not_ready(self) -> str | None:
        """The reason why no event can be stored, in a word, or None."""
        return "nothing_stores" if self._refusing or (self.away and self._spool.full) else None

    async def publish(self, topic: Topic, key: bytes, event: Event) -> None:
        """Store one event. Raises RecordTooLarge, or another LogError when neither log nor spool takes it."""
        is_call = isinstance(event, CallCaptured | CallFailed)
        if not is_call and self._spool.holds(key):
            await self._keep(Outgoing.of(topic, key, event), behind=True)
            return
        try:
            await self._store(topic, key, event, behind=not is_call)
        except RecordTooLarge:
            raise
        except LogError as error:
            self._refusing = True
            if not (self._available and isinstance(event, CallCaptured)):
                raise
            self._metrics.capture_lost.inc()
            log.error("capture_lost", call_id=event.call_id, error=str(error))

    def close(self) -> None:
        """Wait for outstanding acknowledgements; what the spool still holds is left to the next process."""
        away = self.away
        self._ending.set()
        self._drainer.stop(STOP_TIMEOUT_S)
        self._producer.close(STOP_TIMEOUT_S if away else FLUSH_TIMEOUT_S)
        self._spool.close()

    async def _store(self, topic: Topic, key: bytes, event: Event, *, behind: bool) -> None:
        if self.away:
            try:
                await self._keep(Outgoing.of(topic, key, event), behind=behind)
                return
            except SpoolFull as full:
                log.warning("spool_full_while_log_is_away", error=str(full))
        try:
            await self._producer.publish(topic, key, event)
            self._refusing = False
        except RecordTooLarge:
            raise
        except LogError as error:
            log.warning("log_did_not_acknowledge", kind=type(event).__name__, error=str(error))
            self._drainer.log_is_away()
            await self._keep(Outgoing.of(topic, key, event), behind=behind)

    async def _keep(self, item: Outgoing, *, behind: bool) -> None:
        """Into the spool. Raises SpoolFull, RecordTooLarge."""
        try:
            await asyncio.wait_for(self._spool.append(item, behind=behind), self._spool_timeout_s)
        except TimeoutError as error:
            raise SpoolFull(f"the spool's disk did not write within {self._spool_timeout_s:g} s") from error
        self._refusing = False

    def _probe(self, is_quiet: Callable[[], bool]) -> None:
        """Look what nothing else would notice: without traffic, whether events that are refused would be taken again; and whether
        the log is away when nothing comes out of it."""
        again_s = 0.0
        while not self._ending.wait(PROBE_EVERY_S):
            if self._refusing and (self._spool.writable() or self._log_answers()):
                self._refusing = False
            if not is_quiet():
                self._unheard = False
            elif self._unheard or time.monotonic() >= again_s:
                self._unheard = not self._log_answers()
                again_s = time.monotonic() + QUIET_PROBE_EVERY_S

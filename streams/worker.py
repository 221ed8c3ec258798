"""The Faust shell. Input: claw.calls and claw.rewards; output: the pool, in one transaction per partition and flush.

Invariant: no event is acknowledged before its effect is committed. The shell never skips: any failure ends the
process, and a supervisor starts another, which reads state and position from the log. Why each step is as it is:
docs/adr and the notes it cites.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import structlog

from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.logs import drain_logs
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.topics import FACTS
from claw_r1.streams.decision_writer import DecisionWriter, by_age, by_idleness
from claw_r1.streams.errors import ExitCode, exit_code_of
from claw_r1.streams.faust_.app import faust_app, record_of
from claw_r1.streams.flush import Flusher
from claw_r1.streams.lag import LagWatch
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.streams.ownership import FaustEvent, OwnedPartition, Ownership, assigned_numbers
from claw_r1.streams.settings import StreamsSettings

log = structlog.get_logger()

CRASH_POLL_S = 0.5
Exit = Callable[[int], Any]  # os._exit does not return


class StreamsWorker:
    """One member of the group. One per process: a broken one ends its process."""

    def __init__(self, settings: StreamsSettings, log_settings: LogSettings, *, leave: Exit = os._exit) -> None:
        """Call in the event loop that runs it."""
        self.metrics = StreamsMetrics()
        self._settings = settings
        self._log_settings = log_settings
        self._leave = leave
        self._topics = [log_settings.catalogue().name(topic) for topic in FACTS]
        self._fetched: Callable[[], int] = int  # facts in memory that wait to be folded
        self._threads = ThreadPoolExecutor(max_workers=max(8, log_settings.partitions), thread_name_prefix="streams")
        self._ownership = Ownership(log_settings, settings, self.metrics, self._in_thread)
        self._flusher = Flusher(settings, self.metrics, self._ownership.partitions, self._in_thread, self._is_current)
        self._had_partitions = False
        self._lag = LagWatch(log_settings, settings.watchdog_stall_s, self.metrics)
        self.app = faust_app(settings, log_settings)
        self._wire()

    def _wire(self) -> None:
        facts = self.app.topic(
            *self._topics, key_serializer="raw", value_serializer="raw", partitions=self._log_settings.partitions
        )

        @self.app.agent(facts, name="pool")
        async def pool(stream: Any) -> None:  # faust is untyped
            self._fetched = stream.channel.queue.qsize
            await self._consume(stream.noack().events())

        @self.app.on_partitions_revoked.connect(weak=False)
        async def revoked(*_: Any, **__: Any) -> None:
            with self._or_leave():
                await self._flusher.flush()
                await self.app.consumer.commit()

        @self.app.on_rebalance_complete.connect(weak=False)
        async def assigned(*_: Any, **__: Any) -> None:
            with self._or_leave():
                async with self._flusher.lock:
                    numbers = assigned_numbers(self.app.consumer.assignment(), self._topics)
                    await self._ownership.take_over(numbers, self.app.consumer_generation_id)
            self._had_partitions = True

        @self.app.on_before_shutdown.connect(weak=False)
        async def shutdown(*_: Any, **__: Any) -> None:
            with self._or_leave():
                await self._flusher.flush()

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set; then everything folded is committed and acknowledged."""
        await self.app.start()
        producer = EventProducer(self._log_settings) if self._settings.reactors_enabled else None
        tasks = [asyncio.create_task(task) for task in [*self._background(), *self._deciders(producer)]]
        try:
            await stopping.wait()
            await self.app.stop()
        finally:
            for task in tasks:
                task.cancel()
            if producer is not None:
                await self._in_thread(producer.close)
            await self._ownership.close()
            self._threads.shutdown(wait=False)

    def not_ready(self) -> str | None:
        """Returns why this worker folds nothing yet; None: it has its partitions, maybe none."""
        return None if self._had_partitions else "the group has not yet said which partitions are its own"

    def _background(self) -> Iterator[Coroutine[Any, Any, None]]:
        settings = self._settings
        yield self._every(settings.flush_interval_s, lambda: self._flusher.flush_unless_behind(self._fetched()))
        yield self._every(CRASH_POLL_S, self._check_crash)
        yield self._every(settings.keep_interval_s, self._keep)
        yield self._every(settings.watchdog_interval_s, self._check_lag)

    def _deciders(self, producer: EventProducer | None) -> Iterator[Coroutine[Any, Any, None]]:
        settings = self._settings
        if producer is None:
            return
        idle = DecisionWriter(producer, by_idleness(settings.trajectory_idle_timeout_s), self.metrics, self._ends)
        yield self._every(settings.reactor_interval_s, partial(self._tick, idle))
        if settings.retention_s is not None:
            old = DecisionWriter(producer, by_age(settings.retention_s), self.metrics, self._ends)
            yield self._every(settings.retention_interval_s, partial(self._tick, old))

    async def _every(self, interval_s: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            with self._or_leave():
                await action()

    async def _check_crash(self) -> None:
        if self.app.crashed:
            raise RuntimeError(f"faust crashed: {self.app.crash_reason!r}")

    async def _keep(self) -> None:
        async with self._flusher.lock:
            await self._ownership.keep()
        await self._ownership.look()

    async def _check_lag(self) -> None:
        stall = await self._in_thread(self._lag.stall, self._ownership.states, self._ownership.at_work)
        if stall is not None:
            self._exit(ExitCode.STALLED, stall)
        if not self._ownership.is_copying:
            async with self._flusher.lock:
                await self._ownership.copy()

    async def _tick(self, writer: DecisionWriter) -> None:
        """Decisions are taken under the lock, where nothing is half folded, and written outside it."""
        async with self._flusher.lock:
            due = await writer.due(self._ownership.states, now_us())
        await writer.act(due)

    async def _ends(self) -> dict[Place, int]:
        ends: dict[Place, int] = await self._in_thread(end_offsets, self._log_settings, FACTS)
        return ends

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    # Events

    async def _consume(self, events: AsyncIterator[FaustEvent]) -> None:
        async for event in events:
            try:
                await self._on_event(event)
            except Exception as error:  # noqa: BLE001 - as in `_or_leave`, which takes longer than the rest of this loop
                self._leave_for(error)

    async def _on_event(self, event: FaustEvent) -> None:
        message = event.message
        owned = self._owner(event)
        if owned is not None and message.offset > owned.state.expected(message.topic):
            async with self._flusher.lock:  # so that no snapshot is taken while a thread folds
                if self._owner(event) is owned:  # it may have been given up, and closed, while this waited
                    await self._ownership.heal(owned, message.topic, message.offset)
        if owned is None or self._owner(event) is not owned:
            return
        self._flusher.fold(owned, event, record_of(message))
        if self._flusher.is_full:
            await self._flusher.flush()

    def _owner(self, event: FaustEvent) -> OwnedPartition | None:
        """The partition of an event of the present assignment."""
        return self._ownership.partitions.get(event.message.partition) if self._is_current(event) else None

    def _is_current(self, event: FaustEvent) -> bool:
        return bool(event.message.generation_id == self.app.consumer_generation_id)

    # Leaving

    @contextmanager
    def _or_leave(self) -> Iterator[None]:
        """Faust swallows or skips exceptions in most places; state may be ahead of the log: only leaving is safe."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - nothing is swallowed: this leaves the process
            self._leave_for(error)

    def _leave_for(self, error: Exception) -> None:
        self._exit(exit_code_of(error), error)

    def _exit(self, code: ExitCode, why: BaseException | str) -> None:
        failure = why if isinstance(why, BaseException) and code is ExitCode.BROKE else None
        log.error("streams_left", code=int(code), reason=str(why), kind=type(why).__name__, exc_info=failure)
        drain_logs()
        self._leave(int(code))

"""The Faust shell. Input: claw.calls and claw.rewards; output: the pool, in one transaction per partition and flush.

Invariant: no event is acknowledged before its effect is committed, and nothing is written for a partition whose producer
is not the last one opened. The shell never skips: what it cannot do ends the process, and a supervisor starts another,
which reads state and position from the log. Why each step is as it is: docs/adr and the notes it cites.
"""

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import faust
import structlog

from eventlog.errors import BrokerUnreachable
from eventlog.kafka.admin import end_offsets
from eventlog.kafka.producer import EventProducer
from eventlog.kafka.reader import committed_offsets
from eventlog.records import Place, Record
from eventlog.settings import LogSettings
from schemas.envelopes import now_us
from schemas.runtime.logs import drain_logs
from schemas.topics import LARGEST_RECORD_BYTES
from streams.commit import Batch, FaustEvent, OwnedPartition, acknowledge, group_name, open_producer
from streams.decisions import Clock, by_age, by_idleness
from streams.errors import ExitCode, NotCopartitioned, exit_code_of
from streams.faust_ import transport
from streams.faust_.assignor import CopartitionedAssignor
from streams.metrics import StreamsMetrics
from streams.recovery import FACTS, heal, heal_behind_group, recover
from streams.settings import StreamsSettings
from streams.watchdog import Watchdog

log = structlog.get_logger()

CRASH_POLL_S = 0.5
Exit = Callable[[int], Any]  # os._exit does not return


def faust_app(settings: StreamsSettings, log_settings: LogSettings) -> faust.App:
    """Faust as a group member that reads bytes, and nothing else of Faust: no tables, no topics of its own, no web."""
    servers = ";".join(f"kafka://{server}" for server in log_settings.bootstrap_servers.split(","))
    app = faust.App(
        group_name(log_settings.catalogue()),
        broker=servers,
        datadir=str(Path(tempfile.gettempdir()) / f"claw-streams-{os.getuid()}"),  # stays empty without tables
        topic_partitions=log_settings.partitions,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        stream_wait_empty=False,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=settings.group_instance_id,
        consumer_max_fetch_size=LARGEST_RECORD_BYTES,
        broker_session_timeout=settings.session_timeout_s,
        broker_heartbeat_interval=settings.heartbeat_interval_s,
        broker_commit_interval=1.0,
        Monitor=transport.Unmeasured,
        cython_optimizations=True,  # take what stands in the queue without waiting for it
        PartitionAssignor=CopartitionedAssignor,
        table_standby_replicas=1,  # there are no tables: this makes Faust ask the assignor above
    )
    transport.use(app)
    return app


def flush_due(fetched: int, since_s: float, behind_s: float) -> bool:
    """While fetched facts wait, a later and larger flush writes the row of a trajectory once where many would write it often."""
    return fetched == 0 or since_s >= behind_s


class StreamsWorker:
    """One member of the group. One per process: a broken one ends its process."""

    def __init__(self, settings: StreamsSettings, log_settings: LogSettings, *, leave: Exit = os._exit) -> None:
        """Call in the event loop that runs it."""
        self.metrics = StreamsMetrics()
        self._settings = settings
        self._log_settings = log_settings
        self._leave = leave
        self._group = group_name(log_settings.catalogue())
        self._topics = [log_settings.catalogue().name(topic) for topic in FACTS]
        self._owned: dict[int, OwnedPartition] = {}
        self._lock = asyncio.Lock()
        self._generation = 0
        self._unflushed = self._unflushed_bytes = 0
        self._flushed_at_s = self._fold_s = 0.0
        self._outcomes: Counter[str] = Counter()
        self._fetched: Callable[[], int] = int  # facts in memory that wait to be folded
        self._threads = ThreadPoolExecutor(max_workers=max(8, log_settings.partitions), thread_name_prefix="streams")
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
                await self.flush()
                await self.app.consumer.commit()

        @self.app.on_rebalance_complete.connect(weak=False)
        async def assigned(*_: Any, **__: Any) -> None:
            with self._or_leave():
                await self._take_over()

        @self.app.on_before_shutdown.connect(weak=False)
        async def shutdown(*_: Any, **__: Any) -> None:
            with self._or_leave():
                await self.flush()

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set; then everything folded is committed and acknowledged."""
        await self.app.start()
        decider = EventProducer(self._log_settings) if self._settings.reactors_enabled else None
        tasks = [asyncio.create_task(task) for task in [*self._background(), *self._clocks(decider)]]
        try:
            await stopping.wait()
            await self.app.stop()
        finally:
            for task in tasks:
                task.cancel()
            if decider is not None:
                await self._in_thread(decider.close)
            self._threads.shutdown(wait=False)

    def _clocks(self, decider: EventProducer | None) -> Iterator[Coroutine[Any, Any, None]]:
        settings = self._settings
        if decider is None:
            return
        idle = Clock(decider, by_idleness(settings.trajectory_idle_timeout_s), self.metrics, self._ends)
        yield self._every(settings.reactor_interval_s, partial(self._tick, idle))
        if settings.retention_s is not None:
            old = Clock(decider, by_age(settings.retention_s), self.metrics, self._ends)
            yield self._every(settings.retention_interval_s, partial(self._tick, old))

    def _background(self) -> Iterator[Coroutine[Any, Any, None]]:
        settings = self._settings
        yield self._every(settings.flush_interval_s, self._flush_unless_behind)
        yield self._every(CRASH_POLL_S, self._check_crash)
        dog = Watchdog(settings.watchdog_stall_s)
        yield self._every(settings.watchdog_interval_s, partial(self._check_lag, dog))

    async def _every(self, interval_s: float, action: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            with self._or_leave():
                await action()

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

    # Events

    async def _consume(self, events: AsyncIterator[FaustEvent]) -> None:
        async for event in events:
            try:
                await self._on_event(event)
            except Exception as error:  # noqa: BLE001 - as in `_or_leave`, which takes longer than the rest of this loop
                self._leave_for(error)

    async def _on_event(self, event: FaustEvent) -> None:
        message = event.message
        owned = self._owned.get(message.partition)
        if owned is None or not self._current(event):
            return
        if message.offset > owned.state.expected(message.topic):
            await self._heal(owned, message.topic, message.offset)
            if self._owned.get(message.partition) is not owned or not self._current(event):
                return
        self._fold(owned, event)
        settings = self._settings
        if self._unflushed >= settings.flush_events_max or self._unflushed_bytes >= settings.flush_bytes_max:
            await self.flush()

    def _fold(self, owned: OwnedPartition, event: FaustEvent) -> None:
        start = time.perf_counter()
        outcome = owned.state.apply(_record(event.message))
        self._outcomes[outcome] += 1
        owned.events.append(event)
        self._unflushed += 1
        self._unflushed_bytes += len(event.message.value or b"")
        self._fold_s += time.perf_counter() - start

    def _current(self, event: FaustEvent) -> bool:
        return bool(event.message.generation_id == self.app.consumer_generation_id)

    async def _heal(self, owned: OwnedPartition, topic: str, end: int) -> None:
        """Under the lock, so that no snapshot is taken while a thread folds."""
        async with self._lock:
            self.metrics.healed.inc(await self._in_thread(heal, self._log_settings, owned.state, topic, end))

    # Flush

    async def _flush_unless_behind(self) -> None:
        since_s = time.monotonic() - self._flushed_at_s
        if flush_due(self._fetched(), since_s, self._settings.flush_behind_s):
            await self.flush()

    async def flush(self) -> None:
        """One transaction per partition with anything pending, all at once; returns when they are committed."""
        async with self._lock:
            work = [(owned, owned.take()) for owned in self._owned.values() if owned.pending]
            self._unflushed, self._unflushed_bytes, self._flushed_at_s = 0, 0, time.monotonic()
            self._count()
            if work:
                with self.metrics.commit_seconds.time():
                    await asyncio.gather(*(self._in_thread(owned.commit, batch) for owned, batch in work))
                for _, batch in work:
                    self._committed(batch)

    def _count(self) -> None:
        """Once per flush: a metric's lock and labels cost more than a small fact."""
        for outcome, number in self._outcomes.items():
            self.metrics.facts.labels(outcome).inc(number)
        self.metrics.fold_seconds.inc(self._fold_s)
        self._outcomes.clear()
        self._fold_s = 0.0

    def _committed(self, batch: Batch) -> None:
        acknowledge(batch, self._current)
        self.metrics.commits.inc()
        self.metrics.rows.inc(len(batch[1]))

    # Ownership

    async def _take_over(self) -> None:
        """Called before any event of the new assignment flows; no transaction is in flight under the lock."""
        async with self._lock:
            own, generation = self._assigned(), self.app.consumer_generation_id
            missed = generation - self._generation > 1  # somebody else may have owned what we hold
            self._generation = generation
            stale = [number for number, one in self._owned.items() if missed or number not in own or one.pending]
            await asyncio.gather(*(self._in_thread(self._owned.pop(number).close) for number in stale))
            new = sorted(own - self._owned.keys())
            await self._open(new)
            states = {number: self._owned[number].state for number in own}
            if states:
                self.metrics.healed.inc(
                    await self._in_thread(heal_behind_group, self._log_settings, self._group, states)
                )
            self.metrics.partitions.set(len(own))
            log.info("streams_assigned", generation=generation, opened=new, kept=sorted(own - set(new)))

    async def _open(self, partitions: list[int]) -> None:
        """Fence first, all in parallel; only then read."""
        if not partitions:
            return
        timeout_ms = self._settings.transaction_timeout_ms
        opening = (self._in_thread(open_producer, self._log_settings, one, timeout_ms) for one in partitions)
        producers = dict(zip(partitions, await asyncio.gather(*opening), strict=True))
        states = await self._in_thread(recover, self._log_settings, partitions)
        self._owned |= {number: OwnedPartition(states[number], producers[number]) for number in partitions}

    def _assigned(self) -> set[int]:
        of_topic = {name: set[int]() for name in self._topics}
        for place in self.app.consumer.assignment():
            if place.topic in of_topic:
                of_topic[place.topic].add(place.partition)
        first, *others = of_topic.values()
        if any(other != first for other in others):
            raise NotCopartitioned(f"assigned {of_topic}")
        return first

    # Watching

    async def _check_crash(self) -> None:
        if self.app.crashed:
            raise RuntimeError(f"faust crashed: {self.app.crash_reason!r}")

    async def _tick(self, clock: Clock) -> None:
        """Decisions are taken under the lock, where nothing is half folded, and written outside it."""
        async with self._lock:
            states = {number: owned.state for number, owned in self._owned.items()}
            due = await clock.due(states, now_us())
        await clock.act(due, states)

    async def _ends(self) -> dict[Place, int]:
        ends: dict[Place, int] = await self._in_thread(end_offsets, self._log_settings, FACTS)
        return ends

    async def _check_lag(self, dog: Watchdog) -> None:
        """Without partitions, what counts is the whole group: it must not sit there while nobody has any."""
        try:
            processed, lag = await self._in_thread(self._measure, dict(self._owned))
        except BrokerUnreachable as error:
            log.warning("streams_lag_unknown", error=str(error))
            return
        self.metrics.lag.set(lag)
        if dog.stalled(processed=processed, lag=lag, now_s=time.monotonic()):
            self._exit(
                ExitCode.STALLED, f"{lag} facts wait and none was folded for {self._settings.watchdog_stall_s} s"
            )

    def _measure(self, owned: dict[int, OwnedPartition]) -> tuple[int, int]:
        """Facts processed so far and facts waiting: of these partitions, or of the whole group when there are none."""
        ends = end_offsets(self._log_settings, FACTS)
        if owned:
            at = {(name, number): one.state.expected(name) for number, one in owned.items() for name in self._topics}
        else:
            numbers = range(self._log_settings.partitions)
            places = committed_offsets(self._log_settings, self._group, FACTS, numbers)
            at = {place: offset or 0 for place, offset in places.items()}
        return sum(at.values()), sum(max(0, ends.get(place, 0) - offset) for place, offset in at.items())

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


def _record(message: Any) -> Record:  # faust's message
    headers = message.headers or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Record(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=int((message.timestamp or 0) * 1000),
        key=message.key,
        value=message.value,
        headers=tuple((name, value or b"") for name, value in pairs),
    )

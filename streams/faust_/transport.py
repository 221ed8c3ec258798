"""Faust's Kafka transport, without its four tasks per message (docs/adr/0008), and with fetches of many messages.

Faust delivers each message to its queue as one of four tasks, so that a delivery that waits (flow suspended, queue full)
ends with the flow. Most deliveries cannot wait; those are simply run.

Its client asks again as soon as it has an answer, and the broker answers with the first message that comes: in a steady stream of
small facts a request for each, over every partition of every topic. Messages that come one after the other wait for each other here.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from faust import App
from faust.sensors import Monitor
from faust.transport.drivers import aiokafka
from faust.types import TP

from claw_r1.streams.faust_.assignor import Untyped

MANY = 100


class SpacedFetches:
    """Fetches with a pause between an answer and the next request, by broker; there is none after a longer silence, nor for a
    worker that is behind: it gets large answers anyway."""

    def __init__(self, fetch: Callable[..., Awaitable[bool]], interval_s: float) -> None:
        self._fetch, self._interval_s = fetch, interval_s
        self._answered_s: dict[int, float] = {}

    async def __call__(self, assignment: Untyped, node_id: int, request: Untyped) -> bool:
        """Returns whether there is something new, as aiokafka's own method does; False for a task that is cancelled, since
        its error would end all fetching."""
        pause_s = self._answered_s.get(node_id, -math.inf) + self._interval_s - time.monotonic()
        try:
            if pause_s > 0 and not _is_behind(assignment, request):
                await asyncio.sleep(pause_s)
            return await self._fetch(assignment, node_id, request)
        except asyncio.CancelledError:
            return False
        finally:
            self._answered_s[node_id] = time.monotonic()


def _is_behind(assignment: Untyped, request: Untyped) -> bool:
    """Returns whether the last answer said that many records of a partition are still to be fetched."""
    return any(
        (assignment.state_value(TP(topic, number)).highwater or 0) - position > MANY
        for topic, partitions in request.topics
        for number, position, _ in partitions
    )


class ConsumerThread(aiokafka.AIOKafkaConsumerThread):
    """Faust's thread of the client; its fetches are spaced, and bring committed facts alone."""

    def _create_worker_consumer(self, transport: Untyped) -> Untyped:
        """Faust reads what is committed only where it writes in transactions itself. Facts are written in some where a log is
        copied: what a killed copy began is no fact, and whoever looks a fact up would not find it there."""
        client = super()._create_worker_consumer(transport)
        client._isolation_level = "read_committed"
        return client

    async def on_start(self) -> None:
        """Called when there is a loop, before anything is fetched."""
        await super().on_start()
        fetcher = self._consumer._fetcher
        fetcher._proc_fetch_request = SpacedFetches(fetcher._proc_fetch_request, self.transport.fetch_interval_s)


class Consumer(aiokafka.Consumer):
    """Faust's consumer; only its thread, and how a delivery is awaited, differ."""

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def wait_first(self, *waited: Untyped, **limits: Untyped) -> Untyped:
        """Called for each message with its delivery and the end of the flow, and by nobody else (faust 0.15.3)."""
        delivery, *others = waited
        if self._may_wait():
            return await super().wait_first(*waited, **limits)
        for other in others:
            other.close()  # a coroutine that nobody awaits
        return await delivery

    def _may_wait(self) -> bool:
        return not self.app.flow_control.is_active() or any(topic.queue.full() for topic in self.app.topics)


class Unmeasured(Monitor):
    """Faust's monitor without what it measures of each message: our metrics are our own (`metrics.py`)."""

    def on_message_in(self, *_: Untyped) -> None:
        """A message came."""

    def on_message_out(self, *_: Untyped) -> None:
        """A message was acknowledged."""

    def on_stream_event_in(self, tp: Untyped, *_: Untyped) -> None:
        """An event is taken; Faust looks at when, to say so when a stream seems stuck."""
        self.stream_inbound_time[tp] = self.time()

    def on_stream_event_out(self, *_: Untyped) -> None:
        """An event is left."""


class FaustTransport(aiokafka.Transport):
    """The transport that makes this consumer."""

    Consumer = Consumer
    fetch_interval_s = 0.0


def use(app: App, fetch_interval_s: float) -> None:
    """Have an app read by it. Call before the app is started."""
    app.transport = FaustTransport(app.conf.broker_consumer, app)
    app.transport.fetch_interval_s = fetch_interval_s

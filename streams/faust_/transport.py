"""Faust's Kafka transport, without its four tasks per message (docs/adr/0008).

Faust delivers each message to its queue as one of four tasks, so that a delivery that waits (flow suspended, queue full)
ends with the flow. Most deliveries cannot wait; those are simply run.
"""

from faust import App
from faust.sensors import Monitor
from faust.transport.drivers import aiokafka

from claw_r1.streams.faust_.assignor import Untyped


class Consumer(aiokafka.Consumer):
    """Faust's consumer; only how a delivery is awaited differs."""

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


def use(app: App) -> None:
    """Have an app read by it. Call before the app is started."""
    app.transport = FaustTransport(app.conf.broker_consumer, app)

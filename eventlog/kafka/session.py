"""One librdkafka producer and everything it still owes an answer for.

Invariant: each record that was enqueued has exactly one outcome reported, also when the client dies of a fatal error, in
which case librdkafka may lose the delivery reports.
"""

import contextlib
import threading
from collections.abc import Callable
from functools import partial

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from claw_r1.eventlog.errors import LogError, NotAcknowledged
from claw_r1.eventlog.kafka.librdkafka import delivery_failure, error_of, producer_config
from claw_r1.eventlog.records import OFFSET_UNKNOWN, Outgoing, Position
from claw_r1.eventlog.settings import LogSettings

log = structlog.get_logger()

Delivery = Position | LogError
OnDelivery = Callable[[Delivery], None]
PURGE_TIMEOUT_S = 5.0


class Session:
    """`enqueue` and `poll` from any thread; `end` once."""

    def __init__(self, settings: LogSettings) -> None:
        self._catalogue = settings.catalogue()
        self._client = Producer(producer_config(settings))
        self._owed: set[OnDelivery] = set()
        self._lock = threading.Lock()
        self._ended = False

    def enqueue(self, item: Outgoing, report: OnDelivery) -> bool:
        """Hands a record to librdkafka; False when its queue is full. Any other failure is reported at once."""
        topic = self._catalogue.name(item.topic)
        with self._lock:
            self._owed.add(report)  # before producing: the acknowledgement may be faster than the next line
            try:
                self._produce(topic, item, report)
                return True
            except BufferError:
                self._owed.discard(report)
                return False
            except KafkaException as raised:
                failure = delivery_failure(error_of(raised), topic)
        self._report(report, failure)
        return True

    @property
    def owes(self) -> bool:
        """A record waits for its acknowledgement."""
        return bool(self._owed)

    def poll(self, timeout_s: float) -> bool:
        """Reports what was acknowledged. False when the client is dead: it refuses everything for ever."""
        try:
            self._client.poll(timeout_s)
        except (KafkaException, SystemError) as fatal:  # SystemError: a report was served with the error pending
            log.error("log_producer_dead", error=str(fatal))
            return False
        return True

    def flush(self, timeout_s: float) -> int:
        """Waits for what is outstanding; how many records are left without an answer."""
        with contextlib.suppress(KafkaException, SystemError):  # dead: `poll` tells
            self._client.flush(timeout_s)
        return len(self._owed)

    def end(self) -> None:
        """Fails what is outstanding and takes nothing more. librdkafka's threads end with the last reference."""
        with self._lock:
            self._ended = True
        self._client.purge()
        self.flush(PURGE_TIMEOUT_S)
        for report in list(self._owed):
            self._report(report, NotAcknowledged("the producer ended before the acknowledgement came"))

    def _produce(self, topic: str, item: Outgoing, report: OnDelivery) -> None:
        if self._ended:
            raise KafkaException(KafkaError(KafkaError._DESTROY, "the producer is closed"))
        self._client.produce(
            topic,
            value=item.value,
            key=item.key,
            partition=-1 if item.partition is None else item.partition,
            headers=list(item.headers),
            on_delivery=partial(self._on_delivery, report, topic),
        )

    def _on_delivery(self, report: OnDelivery, topic: str, error: KafkaError | None, message: Message) -> None:
        self._report(report, position_of(message) if error is None else delivery_failure(error, topic))

    def _report(self, report: OnDelivery, outcome: Delivery) -> None:
        self._owed.discard(report)
        report(outcome)


def position_of(message: Message) -> Position:
    """Returns the position of an acknowledged message."""
    offset = message.offset()
    acknowledged = offset if offset is not None and offset >= 0 else OFFSET_UNKNOWN
    return Position(str(message.topic()), int(message.partition() or 0), acknowledged)

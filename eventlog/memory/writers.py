"""The ways of writing to a log in memory."""

from collections.abc import Sequence
from concurrent.futures import Future

from claw_r1.eventlog.errors import Fenced, LogError, NotAcknowledged
from claw_r1.eventlog.memory.topics import MemoryTopics
from claw_r1.eventlog.records import Outgoing, Position
from claw_r1.schemas.events import Event
from claw_r1.schemas.topics import Topic


class MemoryProducer:
    """`EventProducer` on a MemoryLog."""

    def __init__(self, log: MemoryTopics) -> None:
        self._log = log
        self._closed = False

    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position:
        return self.publish_now(topic, key, event)

    async def publish_all(self, items: Sequence[Outgoing]) -> list[Position]:
        return [future.result() for future in [self.produce(item) for item in items]]

    def publish_now(self, topic: Topic, key: bytes, event: Event) -> Position:
        return self.produce(Outgoing.of(topic, key, event)).result()

    def produce(self, item: Outgoing) -> Future[Position]:
        future: Future[Position] = Future()
        try:
            if self._closed:
                raise NotAcknowledged("the producer is closed")
            future.set_result(self._log.append([item])[0])
        except LogError as error:
            future.set_exception(error)
        return future

    def close(self, timeout_s: float = 10) -> None:  # noqa: ARG002  # nothing is ever outstanding
        self._closed = True


class MemoryTransactions:
    """`TransactionalProducer` on a MemoryLog."""

    def __init__(self, log: MemoryTopics, transactional_id: str) -> None:
        self._log = log
        self._id = transactional_id
        self._epoch = 0

    def open(self) -> None:
        self._epoch = self._log.fence(self._id)

    def commit(self, items: Sequence[Outgoing]) -> list[Position]:
        if not self._epoch:
            raise RuntimeError("open() comes before commit()")
        with self._log.changed:
            if self._epoch != self._log.owner_epoch(self._id):
                raise Fenced(f"another owner took over {self._id}")
            positions = self._log.append(items)
            self._log.append_markers({(at.topic, at.partition) for at in positions})
        return positions

    def close(self) -> None:
        self._epoch = 0

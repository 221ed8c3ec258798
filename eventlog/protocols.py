"""The common part of the Kafka log and its memory twin. Code that takes these runs on both, and so do the tests."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Literal, Protocol

from claw_r1.eventlog.records import Outgoing, Place, Position, Record
from claw_r1.schemas.events import Event
from claw_r1.schemas.topics import Topic

Start = Literal["beginning", "end"] | Mapping[Place, int]
OnRevoked = Callable[[Collection[Place]], None]
OnAssigned = Callable[[Collection[Place]], None]


class Producer(Protocol):
    """`claw_r1.eventlog.kafka.producer.EventProducer`, as an interface."""

    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position: ...

    async def publish_all(self, items: Sequence[Outgoing]) -> list[Position]: ...

    def publish_now(self, topic: Topic, key: bytes, event: Event) -> Position: ...

    def produce(self, item: Outgoing) -> Future[Position]: ...

    def close(self, timeout_s: float = 10) -> None: ...


class Reader(Protocol):
    """`claw_r1.eventlog.kafka.reader.LogReader`, as an interface. One thread uses it."""

    def poll(self, timeout_s: float, records_max: int = 500) -> list[Record]: ...

    def read_to_end(self) -> Iterator[Record]: ...

    def at_end(self) -> bool: ...

    def positions(self) -> dict[Place, int]: ...

    def end_offsets(self) -> dict[Place, int]: ...

    def close(self) -> None: ...


class Membership(Protocol):
    """`claw_r1.eventlog.kafka.membership.KafkaMembership`, as an interface. One thread uses it."""

    def poll(self, timeout_s: float, records_max: int) -> list[Record]: ...

    def places(self) -> Collection[Place]: ...

    def positions(self) -> dict[Place, int]: ...

    def commit(self, offsets: Mapping[Place, int]) -> bool: ...

    def close(self) -> None: ...


class Lookup(Protocol):
    """`claw_r1.eventlog.kafka.ranges.FactLookup`, as an interface."""

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]: ...

    def close(self) -> None: ...


class Log(Protocol):
    """The part of a log that rooms need to read and write it: `KafkaLog(settings)` or `MemoryLog(settings)`."""

    def producer(self) -> Producer: ...

    def reader(
        self, topics: Sequence[Topic], *, partitions: Sequence[int] | None = None, start: Start = "beginning"
    ) -> Reader: ...

    def membership(
        self, topics: Sequence[Topic], group_id: str, *, on_revoked: OnRevoked, work_timeout_s: float
    ) -> Membership: ...

    def end_offsets(self, topics: Sequence[Topic]) -> dict[Place, int]: ...

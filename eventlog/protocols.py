"""What the Kafka log and its memory twin have in common. Code that takes these runs on both, and so do the tests."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal, Protocol

from eventlog.records import Outgoing, Place, Position, Record
from eventlog.settings import LogSettings
from schemas.events import Event
from schemas.topics import Topic

if TYPE_CHECKING:
    from eventlog.view import CompactedView

Start = Literal["beginning", "end"] | Mapping[Place, int]


class Producer(Protocol):
    """`eventlog.kafka.producer.EventProducer`, as an interface."""

    async def publish(self, topic: Topic, key: bytes, event: Event) -> Position: ...

    async def publish_all(self, items: Sequence[Outgoing]) -> list[Position]: ...

    def publish_now(self, topic: Topic, key: bytes, event: Event) -> Position: ...

    def produce(self, item: Outgoing) -> Future[Position]: ...

    def close(self, timeout_s: float = 10) -> None: ...


class Transactions(Protocol):
    """`eventlog.kafka.transactions.TransactionalProducer`, as an interface."""

    def open(self) -> None: ...

    def commit(self, items: Sequence[Outgoing]) -> list[Position]: ...

    def close(self) -> None: ...


class Reader(Protocol):
    """`eventlog.kafka.reader.LogReader`, as an interface. One thread uses it."""

    def poll(self, timeout_s: float, records_max: int = 500) -> list[Record]: ...

    def read_to_end(self) -> Iterator[Record]: ...

    def at_end(self) -> bool: ...

    def positions(self) -> dict[Place, int]: ...

    def end_offsets(self) -> dict[Place, int]: ...

    def close(self) -> None: ...


class Lookup(Protocol):
    """`eventlog.kafka.reader.FactLookup`, as an interface."""

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]: ...

    def close(self) -> None: ...


class Log(Protocol):
    """A whole log: makes everything that reads or writes it. `KafkaLog(settings)` or `MemoryLog(settings)`."""

    @property
    def settings(self) -> LogSettings: ...

    def producer(self) -> Producer: ...

    def transactions(self, transactional_id: str) -> Transactions: ...

    def reader(
        self, topics: Sequence[Topic], *, partitions: Sequence[int] | None = None, start: Start = "beginning"
    ) -> Reader: ...

    def lookup(self) -> Lookup: ...

    def view(
        self,
        topics: Sequence[Topic],
        *,
        keep: Callable[[Record], bool] = ...,
        on_change: Callable[[bytes, Record | None], None] | None = None,
    ) -> "CompactedView": ...

    def read_range(self, topic: str | Topic, partition: int, start: int, end: int) -> list[Record]: ...

    def committed_offsets(
        self, group_id: str, topics: Sequence[Topic], partitions: Iterable[int]
    ) -> dict[Place, int | None]: ...

    def end_offsets(self, topics: Sequence[Topic]) -> dict[Place, int]: ...

    def create_topics(self) -> list[str]: ...

    def delete_records(self, before: Mapping[Place, int]) -> None: ...

"""The Kafka log as one object: the composition of this room, with the same shape as
`claw_r1.eventlog.memory.log.MemoryLog`."""

from collections.abc import Iterable, Mapping, Sequence

from claw_r1.eventlog.kafka import admin
from claw_r1.eventlog.kafka.membership import KafkaMembership
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import FactLookup, LogReader, committed_offsets, read_range
from claw_r1.eventlog.kafka.transactions import TransactionalProducer
from claw_r1.eventlog.protocols import Membership, OnRevoked, Start
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Topic


class KafkaLog:
    """Holds settings only; each call opens what it returns. Errors are those of the classes it makes."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings = settings

    def producer(self) -> EventProducer:
        return EventProducer(self.settings)

    def transactions(self, transactional_id: str) -> TransactionalProducer:
        return TransactionalProducer(self.settings, transactional_id)

    def reader(
        self, topics: Sequence[Topic], *, partitions: Sequence[int] | None = None, start: Start = "beginning"
    ) -> LogReader:
        return LogReader(self.settings, topics, partitions=partitions, start=start)

    def membership(
        self, topics: Sequence[Topic], group_id: str, *, on_revoked: OnRevoked, work_timeout_s: float
    ) -> Membership:
        return KafkaMembership(self.settings, topics, group_id, on_revoked=on_revoked, work_timeout_s=work_timeout_s)

    def lookup(self) -> FactLookup:
        return FactLookup(self.settings)

    def read_range(self, topic: str | Topic, partition: int, start: int, end: int) -> list[Record]:
        return read_range(self.settings, topic, partition, start, end)

    def committed_offsets(
        self, group_id: str, topics: Sequence[Topic], partitions: Iterable[int]
    ) -> dict[Place, int | None]:
        return committed_offsets(self.settings, group_id, topics, partitions)

    def end_offsets(self, topics: Sequence[Topic]) -> dict[Place, int]:
        return admin.end_offsets(self.settings, topics)

    def create_topics(self) -> list[str]:
        return admin.create_topics(self.settings)

    def delete_records(self, before: Mapping[Place, int]) -> None:
        admin.delete_records(self.settings, before)

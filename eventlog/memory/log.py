"""The log in memory as one object, with the same shape as `claw_r1.eventlog.kafka.log.KafkaLog`."""

from collections.abc import Sequence

from claw_r1.eventlog.memory.membership import MemoryMembership
from claw_r1.eventlog.memory.readers import MemoryLookup, MemoryReader
from claw_r1.eventlog.memory.topics import MemoryTopics
from claw_r1.eventlog.memory.writers import MemoryProducer, MemoryTransactions
from claw_r1.eventlog.protocols import OnRevoked, Start
from claw_r1.schemas.topics import Topic


class MemoryLog(MemoryTopics):
    """Topics in memory, and whatever reads or writes them."""

    def producer(self) -> MemoryProducer:
        return MemoryProducer(self)

    def transactions(self, transactional_id: str) -> MemoryTransactions:
        return MemoryTransactions(self, transactional_id)

    def reader(
        self, topics: Sequence[Topic], *, partitions: Sequence[int] | None = None, start: Start = "beginning"
    ) -> MemoryReader:
        return MemoryReader(self, topics, partitions=partitions, start=start)

    def membership(
        self, topics: Sequence[Topic], group_id: str, *, on_revoked: OnRevoked, work_timeout_s: float
    ) -> MemoryMembership:
        return MemoryMembership(self, topics, group_id, on_revoked=on_revoked, work_timeout_s=work_timeout_s)

    def lookup(self) -> MemoryLookup:
        return MemoryLookup(self)

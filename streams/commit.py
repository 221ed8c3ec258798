"""One owned partition: its state, the producer that fences its writes, and the events that wait for their commit.

Invariant: nothing is acknowledged before the transaction that holds its effect is committed; after an error here the
state is ahead of the log, so the only way on is a new process.
"""

from collections.abc import Callable
from typing import Any

from eventlog.kafka.transactions import TransactionalProducer
from eventlog.records import Outgoing
from eventlog.settings import LogSettings
from schemas.envelopes import now_us
from schemas.topics import Catalogue
from streams.partition.state import PartitionState

FaustEvent = Any  # faust is untyped
Batch = tuple[list[FaustEvent], list[Outgoing]]


def group_name(catalogue: Catalogue) -> str:
    """The consumer group, one per generation of the pool; also the stem of the transactional ids of its writers."""
    name = f"{catalogue.prefix}.streams"
    return name if catalogue.generation == 1 else f"{name}.g{catalogue.generation}"


def open_producer(log_settings: LogSettings, partition: int, timeout_ms: int = 60_000) -> TransactionalProducer:
    """Fences whoever owned the partition before. Blocking. Raises Fenced, BrokerUnreachable."""
    transactional_id = f"{group_name(log_settings.catalogue())}-{partition}"
    producer = TransactionalProducer(log_settings, transactional_id, timeout_ms=timeout_ms, positions=False)
    producer.open()
    return producer


class OwnedPartition:
    """Used by the event loop, except `commit` and `close`, which block and run in a thread."""

    def __init__(self, state: PartitionState, producer: TransactionalProducer) -> None:
        self.state = state
        self.events: list[FaustEvent] = []
        self._producer = producer

    @property
    def pending(self) -> bool:
        return self.state.pending or bool(self.events)

    def take(self) -> Batch:
        """What happened since the last batch; a snapshot, so folding goes on while it is written."""
        events, self.events = self.events, []
        return events, self.state.snapshot(now_us())

    def commit(self, batch: Batch) -> None:
        """Returns when the batch is visible to committed readers. Raises Fenced and other LogErrors."""
        self._producer.commit(batch[1])

    def close(self) -> None:
        """Give the producer's threads back."""
        self._producer.close()
        self.state.close()


def acknowledge(batch: Batch, current: Callable[[FaustEvent], bool]) -> None:
    """Only events of the current generation: an older one would move offsets of a partition that has a new owner."""
    for event in batch[0]:
        if current(event):
            event.ack()

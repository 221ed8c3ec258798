"""The run's own topics: training.batches and weights, written in transactions, read back to resume.

Input: claw.training.batches (key run_id), claw.weights (key model_id), read_committed, from the beginning.
Output: the same topics. Delivery: each call of `commit` is one transaction: all of its events or none, once.
A replay reads the same events; nothing is acknowledged, because nothing is consumed.
Fencing: transactional.id = run_id, opened before history is read. So any other trainer of this run can
commit nothing after that, and the history is complete.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import structlog

from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.kafka.transactions import TransactionalProducer
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing, Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.cloudevents import Headers
from claw_r1.schemas.codec import decode, event_name, fields_before_lists
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    Event,
    RunEnded,
    RunStarted,
    VersionEvaluated,
    WeightsPublished,
)
from claw_r1.schemas.topics import BATCHES, WEIGHTS
from claw_r1.trainer.journal.history import History, history_of
from claw_r1.trainer.progress import NO_BATCH

log = structlog.get_logger()

RunEvent = RunStarted | BatchAssembled | BatchTrained | BatchSkipped | VersionEvaluated | RunEnded | WeightsPublished


class Transactions(Protocol):
    """`claw_r1.eventlog.kafka.transactions.TransactionalProducer`, or a fake."""

    def open(self) -> None:
        """Fence the former owner."""

    def commit(self, items: Sequence[Outgoing]) -> list[Position]:
        """One transaction. Raises Fenced."""

    def close(self) -> None:
        """Let go."""


class Journal:
    """`read` gives every committed record of both topics that may concern the run, up to now."""

    def __init__(self, transactions: Transactions, read: Callable[[], Iterable[Record]], run_id: str) -> None:
        self._transactions = transactions
        self._read = read
        self._run_id = run_id
        self._lock = threading.Lock()

    def open(self, plans_after: int = NO_BATCH) -> History:
        """Take the run over, then read what it did, as `history` does. Raises LogError when the log cannot be read."""
        self._transactions.open()
        return self.history(plans_after)

    def history(self, plans_after: int = NO_BATCH) -> History:
        """Reads the history of the run, with the plans of the batches after `plans_after`. Whoever owns the run keeps it."""
        return _history(self._read(), self._run_id, plans_after)

    def commit(self, *events: RunEvent) -> None:
        """All of them in one transaction, from any thread. Raises Fenced when another trainer took the run over."""
        with self._lock:
            self._transactions.commit([_outgoing(event) for event in events])

    def close(self) -> None:
        """Let go of the run."""
        self._transactions.close()


def _outgoing(event: RunEvent) -> Outgoing:
    if isinstance(event, WeightsPublished):
        return Outgoing.of(WEIGHTS, event.model_id.encode(), event)
    return Outgoing.of(BATCHES, event.run_id.encode(), event)


def _decoded(record: Record, run_id: str) -> Event | None:
    """A record that cannot be read is none of ours: the run's own events were written by this code.

    Weights come without their manifest, which a large model has thousands of lines of and a history does not keep. Those
    of the model's other runs are passed over by their first fields: a shared model has far more of them.
    """
    try:
        if event_name(record.value) == WeightsPublished.__name__:
            if fields_before_lists(record.value)["run_id"] != run_id:
                return None
            return decode(record.value, without="manifest")
        return record.event()
    except UndecodableRecord as error:
        log.warning(
            "journal_record_undecodable",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            error=str(error),
        )
        return None


def kafka_journal(settings: LogSettings, run_id: str, model_id: str) -> Journal:
    """The journal on a broker."""
    producer = TransactionalProducer(settings, transactional_id(settings, run_id))
    return Journal(producer, lambda: _written(settings, run_id, model_id), run_id)


def kafka_history(settings: LogSettings, run_id: str, model_id: str, plans_after: int = NO_BATCH) -> History:
    """Reads the history of a run, for a reader who leaves the run to its trainer. Raises LogError."""
    return _history(_written(settings, run_id, model_id), run_id, plans_after)


def _history(records: Iterable[Record], run_id: str, plans_after: int) -> History:
    return history_of((_decoded(record, run_id) for record in records), run_id, plans_after)


def _written(settings: LogSettings, run_id: str, model_id: str) -> Iterator[Record]:
    """Reads the run's keys in the two partitions that hold them."""
    for topic, key in ((BATCHES, run_id.encode()), (WEIGHTS, model_id.encode())):
        partition = partition_of(key, settings.partitions)
        wants = partial(_has_key, key)
        with LogReader(settings, [topic], partitions=[partition], wants=wants) as reader:
            yield from reader.read_written()  # another run's dead transaction may stand before our records


def _has_key(wanted_key: bytes, _: str, key: bytes | None, __: Headers) -> bool:
    return key == wanted_key


def transactional_id(settings: LogSettings, run_id: str) -> str:
    """Returns the id that fences a second trainer of the run off; the prefix keeps installations on one broker apart."""
    return f"{settings.prefix}.trainer.{run_id}"

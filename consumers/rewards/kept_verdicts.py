"""The kept verdicts of a slot, for the partitions that this process owns.

Invariant: a partition is fenced before its verdicts are read, and read up to a mark that is written after
fencing, so its owner knows every verdict that an earlier owner kept, and no other process can keep one. One
transaction keeps all verdicts of one moment in one partition; they are on disk here only after the log has them.

Cost: an owner reads its partition of claw.rewards.verdicts once; its own verdicts are in
sqlite's temporary file, as large as in the log, and one transactional client per partition stays open.
"""

import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing, suppress
from typing import Protocol

import structlog

from claw_r1.consumers.rewards.config import ScoredSlot
from claw_r1.eventlog.errors import BrokerUnreachable, Fenced, LogError, RecordTooLarge
from claw_r1.eventlog.protocols import Log, Lookup
from claw_r1.eventlog.records import Outgoing, Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas import codec
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import VerdictKept
from claw_r1.schemas.topics import VERDICTS, Topic

log = structlog.get_logger()

DAY_US = 86_400_000_000
RESTORE_TIMEOUT_S = 120.0
"""Without another record. Another slot's open transaction hides later ones until the broker aborts it: a minute."""
POLL_S = 0.5
DIGEST_SHOWN = 12
"""Characters of a digest of settings in a warning."""
SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -8192;
CREATE TABLE kept (id BLOB, p INTEGER, value BLOB, PRIMARY KEY (id, p)) WITHOUT ROWID;
BEGIN;
"""


class VerdictTransactions(Protocol):
    """`claw_r1.eventlog.kafka.transactions.TransactionalProducer`, as an interface."""

    def open(self) -> None: ...

    def commit(self, items: Sequence[Outgoing]) -> list[Position]: ...

    def close(self) -> None: ...


class ScorerLog(Log, Protocol):
    """The part of a log that scorers need: `KafkaLog(settings)` or `MemoryLog(settings)`."""

    settings: LogSettings

    def transactions(self, transactional_id: str) -> VerdictTransactions: ...

    def lookup(self) -> Lookup: ...

    def read_range(self, topic: str | Topic, partition: int, start: int, end: int) -> list[Record]: ...


class Verdicts:
    """Belongs to one thread."""

    def __init__(self, scorer_log: ScorerLog, slot: ScoredSlot, *, stop: threading.Event | None = None) -> None:
        self._log = scorer_log
        self._stop = stop or threading.Event()
        self._slot = slot
        self._own = (slot.scorer.source, slot.scorer.name, slot.scorer.version)
        self._digests = {slot.digest, ""}
        self._producers: dict[int, VerdictTransactions] = {}
        self._tokens: dict[int, dict[int, int]] = {}
        self._failures: dict[int, int] = {}
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.executescript(SCHEMA)

    def own(self, partition: int) -> None:
        """Fences the former owner and reads what was kept, once. Raises Fenced, BrokerUnreachable."""
        if partition in self._producers:
            return
        producer = self._log.transactions(f"{self._slot.group_id(self._log.settings.prefix)}-{partition}")
        try:
            producer.open()
            mark = Outgoing.tombstone(VERDICTS, f"{self._slot.group_id('owner')}-{partition}".encode(), partition)
            (at,) = producer.commit([mark])
            verdicts = self._restore(partition, at.offset)
        except BaseException:
            producer.close()
            self._drop([partition])
            raise
        self._producers[partition] = producer
        log.info("rewards_partition_owned", slot=self._slot.name, partition=partition, verdicts=verdicts)

    def get(self, partition: int, verdict_id: str) -> VerdictKept | None:
        """The verdict that was kept in the partition, which is owned."""
        query = "SELECT value FROM kept WHERE id = ? AND p = ?"
        row = self._db.execute(query, (_key(verdict_id), partition)).fetchone()
        verdict = None if row is None else codec.decode(row[0])
        return verdict if isinstance(verdict, VerdictKept) else None

    def keep(self, partition: int, verdicts: Sequence[VerdictKept]) -> None:
        """One transaction. Raises Fenced: another process owns the partition; BrokerUnreachable and others: whether they
        were kept is not known, and the next `own` finds out.
        """
        items = [Outgoing.of(VERDICTS, verdict.verdict_id.encode(), verdict, partition) for verdict in verdicts]
        try:
            self._producers[partition].commit(items)
        except RecordTooLarge:
            raise
        except Fenced:
            self.forget([partition])
            raise
        except LogError as error:
            self.forget([partition])
            raise BrokerUnreachable(str(error)) from error
        for verdict, item in zip(verdicts, items, strict=True):
            self._put(partition, verdict.verdict_id, item.value or b"")
            self._count(partition, verdict)

    def failures(self, partition: int) -> int:
        """Returns how many verdicts of the partition, which is owned, give a failure in place of a value."""
        return self._failures.get(partition, 0)

    def tokens_today(self, day: int) -> int:
        """Returns the tokens that verdicts of a UTC day (days since 1970) cost in the owned partitions."""
        return sum(days.get(day, 0) for days in self._tokens.values())

    def forget(self, partitions: Collection[int]) -> None:
        """Gives up partitions that belong to another member from now on."""
        for partition in partitions:
            if (producer := self._producers.pop(partition, None)) is not None:
                producer.close()
        self._drop(partitions)

    def close(self) -> None:
        """Idempotent."""
        self.forget(list(self._producers))
        self._db.close()

    def _restore(self, partition: int, mark: int) -> int:
        """Everything of this slot, version and generation up to the offset `mark`. Returns how many."""
        self._tokens[partition] = defaultdict(int)
        count, end, deadline = 0, -1, 0.0
        with closing(self._log.reader([VERDICTS], partitions=[partition])) as reader:
            place = (self._log.settings.catalogue().name(VERDICTS), partition)
            while (at := reader.positions().get(place, 0)) <= mark:
                if at > end:
                    end, deadline = at, time.monotonic() + RESTORE_TIMEOUT_S
                if self._stop.is_set() or time.monotonic() > deadline:
                    raise BrokerUnreachable(
                        f"{place[0]} partition {partition} was read to {at} of {mark} and no further"
                    )
                for record in reader.poll(POLL_S):
                    count += self._take(partition, record)
        return count

    def _take(self, partition: int, record: Record) -> bool:
        if record.value is None:
            return False
        with suppress(UndecodableRecord):
            verdict = record.event()
            assert isinstance(verdict, VerdictKept)  # the topic holds nothing else
            if (verdict.source, verdict.name, verdict.version) != self._own:
                return False
            self._compare(verdict)
            if verdict.generation != self._slot.generation:
                return False
            self._put(partition, verdict.verdict_id, record.value)
            self._count(partition, verdict)
            return True
        return False

    def _compare(self, verdict: VerdictKept) -> None:
        """Reports once if other settings, or another rubric, judged as this slot and version: their rewards count."""
        if self._slot.digest and verdict.settings_digest not in self._digests:
            self._digests.add(verdict.settings_digest)
            log.warning(
                "rewards_other_settings",
                slot=f"{self._slot.name}@{self._slot.scorer.version}",
                settings=self._slot.digest[:DIGEST_SHOWN],
                others=verdict.settings_digest[:DIGEST_SHOWN],
                subject=verdict.subject,
                advice="raise version where it says something else, or give all processes one file: verdicts of both are kept",
            )

    def _put(self, partition: int, verdict_id: str, value: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (_key(verdict_id), partition, value))

    def _count(self, partition: int, verdict: VerdictKept) -> None:
        self._tokens[partition][verdict.envelope.occurred_at_us // DAY_US] += verdict.tokens
        self._failures[partition] = self._failures.get(partition, 0) + (verdict.failed is not None)

    def _drop(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._tokens.pop(partition, None)
            self._failures.pop(partition, None)
            self._db.execute("DELETE FROM kept WHERE p = ?", (partition,))


def _key(verdict_id: str) -> bytes:
    return bytes.fromhex(verdict_id.replace("-", ""))

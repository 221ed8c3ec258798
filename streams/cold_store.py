"""The rows of a partition's pool on local disk, so that groups at rest need not stay in memory.

Invariant: holds, per key, the part of the value last written to the pool from which a state is restored; so a group can
be dropped from memory whenever none of it waits to be written, and read back when a late fact arrives. It is a copy of
the log: an unnamed one ends with its process, and a named one is of the moment of a `save`.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from claw_r1.datapool.pool_database import PoolDatabase
from claw_r1.streams.errors import StoreFailed
from claw_r1.streams.partition.groups import ColdRow


class SqliteColdStore(PoolDatabase):
    """Used by one thread at a time, not always the same; `group` may be called while another thread saves."""

    CACHE_KIB = 1024
    SCHEMA = """
CREATE TABLE rows (topic TEXT, key BLOB, group_id BLOB, value BLOB, touched_us INTEGER, PRIMARY KEY (topic, key))
    WITHOUT ROWID;
CREATE INDEX of_group ON rows (group_id);
CREATE INDEX of_age ON rows (touched_us) WHERE touched_us IS NOT NULL;
"""

    def __init__(self) -> None:
        super().__init__()
        self.unsaved = 0
        """Rows since the last `save`."""
        self._has_erased = False
        self._lock = threading.RLock()

    def write(self, rows: Iterable[ColdRow]) -> None:
        """The latest row of each key wins. Raises StoreFailed."""
        latest = {(row.topic, row.key): row for row in rows}
        present = [row for row in latest.values() if row.value is not None]
        removed = [key for key, row in latest.items() if row.value is None]
        with self._in_order():
            self._db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", present)
            self._db.executemany("DELETE FROM rows WHERE topic = ? AND key = ?", removed)
        self.unsaved += len(latest)
        self._has_erased |= bool(removed)

    def save(self, snapshot: bytes, path: Path) -> None:
        """Saves as every database does; what was erased is in no journal of the file either. Raises StoreFailed, OSError."""
        with self._lock, self._in_order():
            super().save(snapshot, path)
            if self._has_erased:
                self._db.execute("COMMIT")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._db.execute("BEGIN")
        self.unsaved, self._has_erased = 0, False

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """Raises StoreFailed: rows may be missing now."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise StoreFailed(f"rows of the pool cannot be kept in {self.path}: {error}") from error

    def group(self, group: bytes) -> list[bytes]:
        """The rows of a group; none: the group is not known."""
        with self._lock:
            rows = self._db.execute("SELECT value FROM rows WHERE group_id = ?", (group,)).fetchall()
        return [value for (value,) in rows]

    def untouched(self, before_us: int, limit: int) -> list[bytes]:
        """Rows last touched at or before that time, the longest untouched first."""
        rows = self._db.execute(
            "SELECT value FROM rows WHERE touched_us <= ? ORDER BY touched_us LIMIT ?", (before_us, limit)
        )
        return [value for (value,) in rows]

    def touch(self, topic: str, key: bytes, touched_us: int | None) -> None:
        """Notes when a row was last touched, where that was not known; None: never look for it by age again."""
        self._db.execute("UPDATE rows SET touched_us = ? WHERE topic = ? AND key = ?", (touched_us, topic, key))

    def topic(self, topic: str) -> Iterator[bytes]:
        """All rows of a topic, one at a time."""
        return (value for (value,) in self._db.execute("SELECT value FROM rows WHERE topic = ?", (topic,)))

    def close(self) -> None:
        """Gives an unnamed file's disk space back. Idempotent."""
        with self._lock:
            super().close()

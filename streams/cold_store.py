"""The rows of a partition's pool on local disk, so that groups at rest need not stay in memory.

Invariant: holds, per key, the value that was last written to the pool, tokens aside; so a group can be dropped from
memory whenever nothing of it waits to be written, and read back when a late fact comes. Private to its process and gone
with it: it is a copy, filled again from the log at every takeover.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

CACHE_KIB = 1024
SETUP = f"""
PRAGMA journal_mode=OFF;
PRAGMA synchronous=OFF;
PRAGMA cache_size=-{CACHE_KIB};
CREATE TABLE rows (topic TEXT, key BLOB, group_id BLOB, value BLOB, touched_us INTEGER, PRIMARY KEY (topic, key))
    WITHOUT ROWID;
CREATE INDEX of_group ON rows (group_id);
CREATE INDEX of_age ON rows (touched_us) WHERE touched_us IS NOT NULL;
"""


class ShelfRow(NamedTuple):
    """One row of the pool; value None removes it. group: `schemas.keys.group_key`."""

    topic: str
    key: bytes
    group: bytes
    value: bytes | None
    touched_us: int | None = None
    """Of a group that may be evicted one day: its last sign of life; 0: somewhere in the value. None: not to be sought."""


class Shelf:
    """Used by one thread at a time, not always the same."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # "": an unnamed file
        self._database.executescript(SETUP)

    def write(self, rows: Iterable[ShelfRow]) -> None:
        """The latest row of each key wins."""
        latest = {(row.topic, row.key): row for row in rows}
        kept = [row for row in latest.values() if row.value is not None]
        gone = [key for key, row in latest.items() if row.value is None]
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", kept)
        self._database.executemany("DELETE FROM rows WHERE topic = ? AND key = ?", gone)
        self._database.execute("COMMIT")

    def group(self, group: bytes) -> list[bytes]:
        """All rows of a group; none: it is not known."""
        found = self._database.execute("SELECT value FROM rows WHERE group_id = ?", (group,))
        return [value for (value,) in found]

    def part(self, group: bytes, topic: str) -> list[bytes]:
        """The rows of a group in one topic."""
        found = self._database.execute("SELECT value FROM rows WHERE group_id = ? AND topic = ?", (group, topic))
        return [value for (value,) in found]

    def untouched(self, before_us: int, limit: int) -> list[bytes]:
        """Rows last touched at or before that time, the longest untouched first."""
        found = self._database.execute(
            "SELECT value FROM rows WHERE touched_us <= ? ORDER BY touched_us LIMIT ?", (before_us, limit)
        )
        return [value for (value,) in found]

    def touch(self, topic: str, key: bytes, touched_us: int | None) -> None:
        """When a row was last touched, where that was not known; None: not to be sought by age any more."""
        self._database.execute("UPDATE rows SET touched_us = ? WHERE topic = ? AND key = ?", (touched_us, topic, key))

    def topic(self, topic: str) -> Iterator[bytes]:
        """All rows of a topic, one at a time."""
        return (value for (value,) in self._database.execute("SELECT value FROM rows WHERE topic = ?", (topic,)))

    def close(self) -> None:
        """Gives the disk space back. Idempotent."""
        self._database.close()

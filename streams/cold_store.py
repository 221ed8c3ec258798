"""The rows of a partition's pool on local disk, so that groups at rest need not stay in memory.

Invariant: holds, per key, what a state is read back from of the value that was last written to the pool; so a group can be dropped from
memory whenever nothing of it waits to be written, and read back when a late fact comes. Private to its process and gone
with it: it is a copy, filled again from the log at every takeover.
"""

import sqlite3
from collections.abc import Iterable, Iterator

from claw_r1.streams.partition.groups import ColdRow

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


class SqliteColdStore:
    """Rows in an unnamed file that is gone with the connection. Used by one thread at a time, not always the same."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # "": an unnamed file
        self._database.executescript(SETUP)

    def write(self, rows: Iterable[ColdRow]) -> None:
        """The latest row of each key wins."""
        latest = {(row.topic, row.key): row for row in rows}
        present = [row for row in latest.values() if row.value is not None]
        removed = [key for key, row in latest.items() if row.value is None]
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", present)
        self._database.executemany("DELETE FROM rows WHERE topic = ? AND key = ?", removed)
        self._database.execute("COMMIT")

    def group(self, group: bytes) -> list[bytes]:
        """The rows of a group; none: the group is not known."""
        return [value for (value,) in self._database.execute("SELECT value FROM rows WHERE group_id = ?", (group,))]

    def untouched(self, before_us: int, limit: int) -> list[bytes]:
        """Rows last touched at or before that time, the longest untouched first."""
        rows = self._database.execute(
            "SELECT value FROM rows WHERE touched_us <= ? ORDER BY touched_us LIMIT ?", (before_us, limit)
        )
        return [value for (value,) in rows]

    def touch(self, topic: str, key: bytes, touched_us: int | None) -> None:
        """Notes when a row was last touched, where that was not known; None: never look for it by age again."""
        self._database.execute("UPDATE rows SET touched_us = ? WHERE topic = ? AND key = ?", (touched_us, topic, key))

    def topic(self, topic: str) -> Iterator[bytes]:
        """All rows of a topic, one at a time."""
        return (value for (value,) in self._database.execute("SELECT value FROM rows WHERE topic = ?", (topic,)))

    def close(self) -> None:
        """Gives the disk space back. Idempotent."""
        self._database.close()

"""A database of the pool's rows (sqlite), in a file with a name or in none. Not thread-safe.

Invariant: what is on disk under a name is of the moment of a `save`. Without a name
nothing outlives the process: the database is sqlite's own temporary file (`""`), which
spills to disk when its cache is full and is gone with the connection; its one
transaction is never committed and no journal kept.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import ClassVar

SNAPSHOT = "CREATE TABLE snapshot (id INTEGER PRIMARY KEY, part BLOB);"
UNNAMED = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA secure_delete = ON; BEGIN;"
NAMED = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON; BEGIN;"
NEW_SUFFIX = ".new"
"""The suffix of a file until it is whole."""
BUSY_S = 30.0
"""The longest time that another process blocks a file: while it copies, or recovers after a kill."""
PART_BYTES = 64 << 20
"""The size of a part of a snapshot: a value of sqlite's is at most 1 GB."""


class PoolDatabase:
    """The base of those that say which tables there are, and ask them."""

    SCHEMA: ClassVar[str]
    CACHE_KIB: ClassVar[int] = 16384

    def __init__(self) -> None:
        self._db = _connected("")
        self.path = Path()
        """The file that holds the rows; empty while they are in an unnamed temporary file, as at first."""
        self._db.executescript(self.SCHEMA + SNAPSHOT)
        self._begin(UNNAMED)

    def open(self, path: Path) -> bytes:
        """Resume a file that `save` wrote: the argument of its last `save`. Raises sqlite3.Error."""
        self.close()
        self._db = _connected(str(path))
        self._begin(NAMED)
        self.path = path
        return self._snapshot()

    def copy(self, path: Path) -> bytes:
        """Take in what another process last saved in its file, which stays its own: as `open`. Raises sqlite3.Error."""
        self.close()
        self._db, self.path = _connected(""), Path()
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source:
            source.backup(self._db)
        self._begin(UNNAMED)
        return self._snapshot()

    def save(self, snapshot: bytes, path: Path) -> None:
        """Write all rows as they are now, and the snapshot, to `path` in one step: until a new file is whole, neither
        it nor a journal is there. Raises OSError if a new one cannot be made, sqlite3.Error if an old one cannot be
        written: rows may be missing then."""
        if self.path == path:
            self._keep(self._db, snapshot)
            self._db.execute("BEGIN")
            return
        self._db.execute("COMMIT")
        try:
            self._write(snapshot, path)
        except sqlite3.OperationalError as error:
            raise OSError(f"{path}: {error}") from error
        finally:
            if self.path != path:
                self._db.execute("BEGIN")

    def _write(self, snapshot: bytes, path: Path) -> None:
        new = path.with_suffix(NEW_SUFFIX)
        new.unlink(missing_ok=True)
        with closing(_connected(str(new))) as named:
            # No journal, and nothing waits for the disk: it has its name when it is whole.
            named.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
            self._db.backup(named)
            named.execute("BEGIN")
            self._keep(named, snapshot)
            named.execute("PRAGMA journal_mode = WAL")  # now: later somebody may be reading it
        new.chmod(0o600)
        new.replace(path)
        self.open(path)

    def is_sound(self) -> bool:
        """Returns whether sqlite finds its pages in order."""
        return bool(self._db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))

    def close(self) -> None:
        """Release the file, without leaving a journal. Unsaved rows are lost. Idempotent."""
        self._db.close()

    def _begin(self, pragmas: str) -> None:
        self._db.executescript(f"PRAGMA cache_size = -{self.CACHE_KIB}; {pragmas}")

    @staticmethod
    def _keep(db: sqlite3.Connection, snapshot: bytes) -> None:
        db.execute("DELETE FROM snapshot")
        parts = (snapshot[at : at + PART_BYTES] for at in range(0, len(snapshot), PART_BYTES))
        db.executemany("INSERT INTO snapshot (part) VALUES (?)", ((part,) for part in parts))
        db.execute("COMMIT")

    def _snapshot(self) -> bytes:
        return b"".join(part for (part,) in self._db.execute("SELECT part FROM snapshot ORDER BY id"))


def _connected(name: str) -> sqlite3.Connection:
    return sqlite3.connect(name, isolation_level=None, check_same_thread=False, timeout=BUSY_S)

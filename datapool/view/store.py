"""Step rows on disk (sqlite), so that the memory of a view does not grow with calls; of a view that lists its rows, those of
trajectories and groups, too. Not thread-safe.

Invariant: what is on disk under a name is of the moment of a `save`. Without a name nothing outlives the process: the database is
sqlite's own temporary file (`""`), which spills to disk when its cache is full and is gone with the connection; its one transaction
is never committed and no journal kept. Ids are stored as bytes: they may hold what sqlite calls no text.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

SCHEMA = """
CREATE TABLE steps (g BLOB, t BLOB, c BLOB, id INTEGER, row_digest BLOB, PRIMARY KEY (g, t, c)) WITHOUT ROWID;
CREATE TABLE bodies (id INTEGER PRIMARY KEY, value BLOB);
CREATE TABLE groups (id INTEGER PRIMARY KEY, value BLOB);
CREATE TABLE trajectories (id INTEGER PRIMARY KEY, value BLOB);
CREATE TABLE words_of_groups (id INTEGER PRIMARY KEY, words BLOB);
CREATE TABLE words_of_trajectories (id INTEGER PRIMARY KEY, words BLOB);
CREATE TABLE words_of_steps (id INTEGER PRIMARY KEY, words BLOB);
CREATE TABLE forgotten (g BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE snapshot (id INTEGER PRIMARY KEY, part BLOB);
"""
UNNAMED = "PRAGMA cache_size = -16384; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;"
NAMED = "PRAGMA cache_size = -16384; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON; BEGIN;"
BUSY_S = 30.0
"""The longest that another process holds a file up: while it copies, or goes through what a kill left."""
PART_BYTES = 64 << 20
"""The size of a part of a snapshot: a value of sqlite's is at most 1 GB."""
# CROSS JOIN below: sqlite then takes the tables in this order instead of guessing without statistics.
PUT = (
    "INSERT INTO steps (g, t, c, id, row_digest) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET row_digest = excluded.row_digest RETURNING id"
)
PLACE = "g = ? AND t = ? AND c = ?"

RowIds = tuple[str, str, str]
"""(group_id, trajectory_id, call_id)"""


class Digests(NamedTuple):
    """The digest of a call's step row, of its bytes."""

    call_id: str
    row: bytes


class StepStore:
    """The latest step row per call."""

    def __init__(self) -> None:
        self._db = _connected("")
        self.path = Path()
        """The file that the rows stand in; none of a name at first."""
        self._db.executescript(SCHEMA + UNNAMED)
        self.fresh = 0
        """The number that the next new step has."""

    def open(self, path: Path) -> bytes:
        """Go on in a file that `save` wrote: what its last `save` was given. Raises sqlite3.Error."""
        self.close()
        self._db = _connected(str(path))
        self._db.executescript(NAMED)
        self.path = path
        return self._snapshot()

    def copy(self, path: Path) -> bytes:
        """Take in what another process last saved in its file, which stays its own: as `open`. Raises sqlite3.Error."""
        self.close()
        self._db, self.path = _connected(""), Path()
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source:
            source.backup(self._db)
        self._db.executescript(UNNAMED)
        return self._snapshot()

    def save(self, snapshot: bytes, path: Path) -> None:
        """Keep all rows as they are now, and the snapshot, in a file of this name, at once; where they do not stand in it yet there is none, nor a
        journal of one. Raises OSError where none can be made, sqlite3.Error where the one that is there cannot be written: rows may be missing then."""
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
        new = path.with_suffix(".new")
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
        """Let the file go, of which nothing is left in a journal. What was not saved is gone. Idempotent."""
        self._db.close()

    @staticmethod
    def _keep(db: sqlite3.Connection, snapshot: bytes) -> None:
        db.execute("DELETE FROM snapshot")
        parts = (snapshot[at : at + PART_BYTES] for at in range(0, len(snapshot), PART_BYTES))
        db.executemany("INSERT INTO snapshot (part) VALUES (?)", ((part,) for part in parts))
        db.execute("COMMIT")

    def _snapshot(self) -> bytes:
        return b"".join(part for (part,) in self._db.execute("SELECT part FROM snapshot ORDER BY id"))

    def put_step(self, ids: RowIds, value: bytes, row_digest: str) -> int:
        """Take a step row in; `value` is its bytes in the log. Its number: it keeps it, and a new step has the next one."""
        row = (*_key(ids), self.fresh, bytes.fromhex(row_digest))
        ((number,),) = self._db.execute(PUT, row).fetchall()
        self.fresh += number == self.fresh
        self._db.execute("INSERT OR REPLACE INTO bodies VALUES (?, ?)", (number, value))
        return int(number)

    def drop_step(self, ids: RowIds) -> list[int]:
        """A tombstone of the step. Its number, if it was there."""
        return self._drop_steps(PLACE, _key(ids))

    def forget(self, group_id: str) -> list[int]:
        """Drop all rows of a group, and remember that; on disk, because a run trains more groups than memory should know.
        Numbers of its steps."""
        key = (as_bytes(group_id),)
        self._db.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", key)
        return self._drop_steps("g = ?", key)

    def _drop_steps(self, where: str, values: Sequence[bytes]) -> list[int]:
        numbers = [number for (number,) in self._db.execute(f"SELECT id FROM steps WHERE {where}", values)]
        self._db.executemany("DELETE FROM bodies WHERE id = ?", [(number,) for number in numbers])
        self._db.execute(f"DELETE FROM steps WHERE {where}", values)
        return numbers

    def is_forgotten(self, group_id: str) -> bool:
        """Returns whether `forget` was ever called for the group."""
        return bool(self._db.execute("SELECT 1 FROM forgotten WHERE g = ?", (as_bytes(group_id),)).fetchone())

    def steps(self, group_id: str, trajectory_id: str) -> dict[str, bytes]:
        """Step rows by call_id."""
        rows = self._db.execute(
            "SELECT c, value FROM steps CROSS JOIN bodies USING (id) WHERE g = ? AND t = ?",
            _key((group_id, trajectory_id)),
        )
        return {as_text(call_id): value for call_id, value in rows}

    def step(self, ids: RowIds) -> bytes | None:
        """One step row."""
        query = f"SELECT value FROM steps CROSS JOIN bodies USING (id) WHERE {PLACE}"  # names of ours
        row = self._db.execute(query, _key(ids)).fetchone()
        return None if row is None else row[0]

    def digests(self, group_id: str, trajectory_id: str) -> list[Digests]:
        """Returns the digests of every call with a step row."""
        rows = self._db.execute(
            "SELECT c, row_digest FROM steps WHERE g = ? AND t = ?", _key((group_id, trajectory_id))
        )
        return [Digests(as_text(call_id), digest) for call_id, digest in rows]

    def named(
        self, names: Sequence[str], limit: int | None = None, group: str | None = None
    ) -> list[tuple[RowIds, bytes]]:
        """Step rows that are, or belong to, one of these ids, in order of their own, at most `limit`. Without a group all keys are
        gone through."""
        several, keys = ", ".join("?" * len(names)), _key(names)
        within, of_group = ("", ()) if group is None else ("g = ? AND ", _key((group,)))
        rows = self._db.execute(
            "SELECT g, t, c, value FROM steps CROSS JOIN bodies USING (id) "
            f"WHERE {within}(g IN ({several}) OR t IN ({several}) OR c IN ({several})) ORDER BY g, t, c LIMIT ?",
            (*of_group, *keys, *keys, *keys, -1 if limit is None else limit),
        )
        return [((as_text(g), as_text(t), as_text(c)), value) for g, t, c, value in rows]

    def list_rows(self, kind: str, rows: Sequence[tuple[int, bytes]]) -> None:
        """Keep the bytes of groups or trajectories by number."""
        self._db.executemany(f"INSERT OR REPLACE INTO {kind} VALUES (?, ?)", rows)  # our own words

    def listed(self, kind: str, number: int) -> bytes | None:
        """The bytes of a group, a trajectory or a step, by its number."""
        table = "bodies" if kind == "steps" else kind
        row = self._db.execute(f"SELECT value FROM {table} WHERE id = ?", (number,)).fetchone()
        return None if row is None else bytes(row[0])

    def unlist(self, kind: str, number: int) -> None:
        """Drop what `list_rows` and `say` kept."""
        for table in (f"words_of_{kind}", *(() if kind == "steps" else (kind,))):
            self._db.execute(f"DELETE FROM {table} WHERE id = ?", (number,))

    def say(self, kind: str, rows: Sequence[tuple[int, bytes]]) -> None:
        """Keep the words of rows by number, in lower case, to look for a text in."""
        self._db.executemany(f"INSERT OR REPLACE INTO words_of_{kind} VALUES (?, ?)", rows)

    def saying(self, kind: str, text: bytes) -> list[int]:
        """Numbers of the rows of which some word holds the text, which is in lower case."""
        return [
            number for (number,) in self._db.execute(f"SELECT id FROM words_of_{kind} WHERE instr(words, ?)", (text,))
        ]


def _connected(name: str) -> sqlite3.Connection:
    return sqlite3.connect(name, isolation_level=None, check_same_thread=False, timeout=BUSY_S)


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def as_text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


def packed(word: str | tuple[str, ...]) -> bytes | list[bytes]:
    """A word, or several, as a snapshot has them."""
    return as_bytes(word) if isinstance(word, str) else list(_key(word))


def unpacked(word: bytes | list[bytes]) -> str | tuple[str, ...]:
    """The inverse of `packed`."""
    return as_text(word) if isinstance(word, bytes) else tuple(map(as_text, word))


def _key(ids: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(map(as_bytes, ids))

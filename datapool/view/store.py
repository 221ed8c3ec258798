"""Step rows on disk (sqlite), so that the memory of a view does not grow with calls; of a view that lists its rows, those of
trajectories and groups, too. Not thread-safe.

Ids are stored as bytes: they may hold what sqlite calls no text.
"""

from collections.abc import Sequence
from typing import NamedTuple

from claw_r1.datapool.pool_database import PoolDatabase

SCHEMA = """
CREATE TABLE steps (g BLOB, t BLOB, c BLOB, id INTEGER, row_digest BLOB, PRIMARY KEY (g, t, c)) WITHOUT ROWID;
CREATE TABLE bodies (id INTEGER PRIMARY KEY, value BLOB);
CREATE TABLE groups (id INTEGER PRIMARY KEY, value BLOB);
CREATE TABLE trajectories (id INTEGER PRIMARY KEY, value BLOB);
CREATE TABLE words_of_groups (id INTEGER PRIMARY KEY, words BLOB);
CREATE TABLE words_of_trajectories (id INTEGER PRIMARY KEY, words BLOB);
CREATE TABLE words_of_steps (id INTEGER PRIMARY KEY, words BLOB);
CREATE TABLE forgotten (g BLOB PRIMARY KEY) WITHOUT ROWID;
"""
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


class StepStore(PoolDatabase):
    """The latest step row per call."""

    SCHEMA = SCHEMA

    def __init__(self) -> None:
        super().__init__()
        self.fresh = 0
        """The number that the next new step has."""

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

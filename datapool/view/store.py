"""Step rows on disk (sqlite), so that the memory of a view does not grow with calls; of a view that lists its rows, those of
trajectories and groups, too. Not thread-safe.

Invariant: nothing here outlives the process. The database is sqlite's own temporary file (`""`): it has no name, spills
to disk when its cache is full, and is gone with the connection. One transaction is never committed and no journal kept,
because a view that dies is read again from the log. Ids are stored as bytes: they may hold what sqlite calls no text.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from claw_r1.schemas.events import StepRecord

SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16384;
CREATE TABLE steps (
  g BLOB, t BLOB, c BLOB, id INTEGER, row_digest BLOB, digest BLOB,
  captured INTEGER, trainable INTEGER, channel BLOB, agent BLOB, quality REAL, scores TEXT, curated INTEGER, reward REAL,
  min_version INTEGER, max_version INTEGER, prompt_length INTEGER, response_length INTEGER, reasons TEXT, tags BLOB,
  PRIMARY KEY (g, t, c)) WITHOUT ROWID;
CREATE INDEX by_call ON steps (c);
CREATE INDEX by_scores ON steps (scores, id) WHERE scores IS NOT NULL;
CREATE TABLE bodies (id INTEGER PRIMARY KEY, value BLOB);
CREATE TABLE groups (id INTEGER PRIMARY KEY, value BLOB);
CREATE TABLE trajectories (id INTEGER PRIMARY KEY, value BLOB);
CREATE TABLE words_of_groups (id INTEGER PRIMARY KEY, words BLOB);
CREATE TABLE words_of_trajectories (id INTEGER PRIMARY KEY, words BLOB);
CREATE TABLE words_of_steps (id INTEGER PRIMARY KEY, words BLOB);
CREATE TABLE forgotten (g BLOB PRIMARY KEY) WITHOUT ROWID;
BEGIN;
"""
# A step row stands in two tables, so that a filter goes through small columns only.
# CROSS JOIN below: sqlite then takes the tables in this order instead of guessing without statistics.
COLUMNS = (
    "row_digest", "digest", "captured", "trainable", "channel", "agent", "quality", "scores", "curated", "reward",
    "min_version", "max_version", "prompt_length", "response_length", "reasons", "tags",
)  # fmt: skip
PUT = (
    f"INSERT INTO steps (g, t, c, id, {', '.join(COLUMNS)}) VALUES (?, ?, ?, ?{', ?' * len(COLUMNS)}) "  # names of ours
    f"ON CONFLICT DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS)} RETURNING id"
)
PLACE = "g = ? AND t = ? AND c = ?"

RowIds = tuple[str, str, str]
"""(group_id, trajectory_id, call_id)"""
Value = str | bytes | int | float | None


class Digests(NamedTuple):
    """The digest of a call's step row, of its bytes."""

    call_id: str
    row: bytes


class StepStore:
    """The latest step row per call, with the columns that filters ask for."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.executescript(SCHEMA)
        self._fresh = 0

    def put_step(self, ids: RowIds, record: StepRecord, value: bytes, row_digest: str) -> int:
        """Take a step row in; `value` is its bytes in the log. Its number: it keeps it, and a new step has the next one."""
        curation = record.curation
        columns = (
            bytes.fromhex(row_digest), bytes.fromhex(record.digest), record.position is not None, record.trainable,
            as_bytes(record.channel), None if record.agent is None else as_bytes(record.agent),
            curation and curation.quality,
            orjson.dumps(curation.scores).decode() if curation and curation.scores else None, curation is not None, record.reward_total, record.min_version,
            record.max_version, record.prompt_length, record.response_length, ",".join(record.reasons),
            tag_list((*record.tags, *(curation.tags if curation else ()))),
        )  # fmt: skip
        ((number,),) = self._db.execute(PUT, (*map(as_bytes, ids), self._fresh, *columns)).fetchall()
        self._fresh += number == self._fresh
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

    def _drop_steps(self, where: str, values: Sequence[Value]) -> list[int]:
        numbers = self.numbers(where, values)
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

    def select(
        self, where: str, values: Sequence[Value], after: RowIds | None, limit: int | None
    ) -> list[tuple[RowIds, bytes]]:
        """Step rows that meet an SQL condition on the columns above, in order of ids, from behind `after` on."""
        condition = f"({where})" + (" AND (g, t, c) > (?, ?, ?)" if after else "")
        rows = self._db.execute(
            f"SELECT g, t, c, value FROM (SELECT g, t, c, id FROM steps WHERE {condition} ORDER BY g, t, c LIMIT ?) "
            "JOIN bodies USING (id) ORDER BY g, t, c",
            (*values, *_key(after or ()), -1 if limit is None else limit),
        )
        return [((as_text(g), as_text(t), as_text(c)), value) for g, t, c, value in rows]

    def trajectories(self, where: str, values: Sequence[Value]) -> set[tuple[str, str]]:
        """(group_id, trajectory_id) of all that have a step which meets the condition."""
        pairs = self._db.execute(f"SELECT DISTINCT g, t FROM steps WHERE {where}", values)
        return {(as_text(g), as_text(t)) for g, t in pairs}

    def numbers(self, where: str, values: Sequence[Value]) -> list[int]:
        """Returns the numbers of the steps that meet the condition, in no order."""
        return [number for (number,) in self._db.execute(f"SELECT id FROM steps WHERE {where}", values)]

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

    def tally(self, columns: str, group_by: str, where: str, values: Sequence[Value]) -> Iterator[tuple[Value, ...]]:
        """`SELECT columns … GROUP BY group_by` over the steps that meet the condition."""
        yield from self._db.execute(f"SELECT {columns} FROM steps WHERE {where} GROUP BY {group_by}", values)


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def as_text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


def tag_list(tags: Sequence[str]) -> bytes:
    """Tags so that `instr(tags, tag_list([tag]))` finds whole ones only."""
    return b"".join(b"\0" + as_bytes(tag) + b"\0" for tag in tags)


def _key(ids: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(map(as_bytes, ids))

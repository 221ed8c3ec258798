"""The columns of all three kinds together: rows in, and the rows that a filter finds.

A condition on fields of steps (quality, scores, trainable, curated tags) applies to a trajectory or group if one of
its steps meets all of it. Tags are as in a batch spec: a step has its trajectory's and group's. Bodies and searchable
words are on disk in the view's store; numbers link a step to its trajectory and that to its group, before their rows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec
import numpy as np
from msgspec import Struct

from claw_r1.datapool.view.listing.columns import COLUMNS, TIME, RowKind, column
from claw_r1.datapool.view.listing.conditions import masks
from claw_r1.datapool.view.listing.derived_columns import DerivedColumns
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.listing.scores import RowScores, ScoresSnapshot, scores_of
from claw_r1.datapool.view.listing.table import CellValue, ColumnTable, Floats, RowMask, RowNumbers, TableSnapshot
from claw_r1.datapool.view.records import PooledRow, words_of
from claw_r1.datapool.view.store import StepStore, as_bytes
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord

COMING_ROWS = 1024


class TablesSnapshot(Struct, array_like=True):
    """All columns, and what ties the kinds together."""

    tables: dict[RowKind, TableSnapshot]
    members: dict[int, list[int]]
    left_out: list[int]
    scores: dict[RowKind, list[ScoresSnapshot]]


class PoolTables:
    """The listed rows of a view: `PoolRecords` with columns. Not thread-safe."""

    def __init__(self, store: StepStore) -> None:
        self._store = store
        self._tables: dict[RowKind, ColumnTable] = {kind: ColumnTable(columns) for kind, columns in COLUMNS.items()}
        self._coming: dict[RowKind, dict[int, tuple[PooledRow, bytes]]] = {kind: {} for kind in COLUMNS}
        """Rows that no column has yet, by number: many at once cost less, and each question takes them in."""
        self._members: dict[int, list[int]] = {}
        """Numbers of the trajectories that a group's row names."""
        self._is_member: RowMask = np.zeros(1, bool)
        self.left_out: set[int] = set()
        """Groups whose rows have no room for all members."""
        self._scores: dict[RowKind, RowScores] = {kind: RowScores() for kind in COLUMNS}
        self._derived = DerivedColumns(self)

    def snapshot(self) -> bytes:
        """Returns what `restore` takes; the rows themselves, and their words, are in the store."""
        snapshot = TablesSnapshot(
            tables={kind: self.table(kind).snapshot() for kind in COLUMNS},
            members=self._members,
            left_out=list(self.left_out),
            scores={kind: scores.snapshot() for kind, scores in self._scores.items()},
        )
        return msgspec.msgpack.encode(snapshot)

    def restore(self, packed_snapshot: bytes) -> None:
        """Take the place of these tables, which are empty. Raises msgspec.DecodeError."""
        snapshot = msgspec.msgpack.decode(packed_snapshot, type=TablesSnapshot)
        for kind, table in snapshot.tables.items():
            self._tables[kind].restore(table)
        self._members = snapshot.members
        self._is_member = np.zeros(len(self._tables["trajectories"]), bool)
        self._is_member[list(chain(*self._members.values()))] = True
        self.left_out = set(snapshot.left_out)
        for kind, scores in snapshot.scores.items():
            self._scores[kind].restore(scores)

    @property
    def size(self) -> int:
        return sum(map(len, map(self.table, COLUMNS)))

    @property
    def gone(self) -> int:
        return self.size - sum(int(self.table(kind).alive.sum()) for kind in COLUMNS)

    def table(self, kind: RowKind) -> ColumnTable:
        """With all rows that have come."""
        self._take_in()
        return self._tables[kind]

    @property
    def groups(self) -> ColumnTable:
        return self.table("groups")

    @property
    def trajectories(self) -> ColumnTable:
        return self.table("trajectories")

    @property
    def steps(self) -> ColumnTable:
        return self.table("steps")

    def reserve(self, kind: RowKind, ids: tuple[str, ...], owner: int = 0) -> int:
        return self._tables[kind].reserve(ids, owner)

    def put_group(self, number: int, record: GroupRecord, value: bytes, members: list[int]) -> None:
        self._put("groups", number, record, value)
        self._set_members(number, members)
        (self.left_out.add if record.members_left_out else self.left_out.discard)(number)

    def put_trajectory(self, number: int, record: TrajectoryRecord, value: bytes) -> None:
        self._put("trajectories", number, record, value)

    def put_step(self, number: int, record: StepRecord, trajectory: int) -> None:
        if number == len(self._tables["steps"]):
            self.reserve("steps", (record.group_id, record.trajectory_id, record.call_id), trajectory)
        self._put("steps", number, record, b"")

    def drop(self, kind: RowKind, number: int) -> None:
        table = self.table(kind)
        if kind == "groups":
            self._set_members(number, [])
            self.left_out.discard(number)
        else:
            self._scores[kind].put(number, {}, is_new=not table.has(number))
        table.drop(number)
        self._store.unlist(kind, number)

    def record(self, kind: RowKind, number: int) -> PooledRow | None:
        """Returns a row decoded, a step too; None where there is none."""
        if number in self._coming[kind]:
            return self._coming[kind][number][0]
        value = self._store.listed(kind, number)
        record = None if value is None else decode(value)
        assert record is None or isinstance(record, PooledRow)  # nothing else was put
        return record

    def values(self, kind: RowKind, name: str) -> Floats:
        """A column by number: a word is its rank, and a missing one is NaN. Raises ValueError for an unknown column."""
        if column(kind, name).type == "ids":
            return self.table(kind).ranks().astype(np.float64)
        return self.table_of_words(kind, name).sortable(name, self.codes(kind, name))

    def mask(self, kind: RowKind, pool_filter: PoolFilter) -> RowMask:
        """Returns the mask of the rows that a filter finds, by number."""
        mask = self.table(kind).alive.copy()
        for test in masks(self, kind, pool_filter):
            mask &= test
        return mask

    def numbers(self, kind: RowKind, ids: Sequence[tuple[str, ...]]) -> list[int]:
        """Returns the numbers of the rows of these ids that are there."""
        table = self.table(kind)
        return [number for number in map(table.number_of, ids) if number >= 0]

    def select(self, kind: RowKind, pool_filter: PoolFilter, after: tuple[str, ...] = ()) -> Iterator[PooledRow]:
        """Returns the rows that a filter finds behind `after`, in order of ids; each is decoded when it is taken."""
        table = self.table(kind)
        order = table.order()[int(table.place_of_ids(after, behind=True) + 0.5) if after else 0 :]
        for number in order[self.mask(kind, pool_filter)[order]].tolist():
            row = self.record(kind, number)
            if row is not None:
                yield row

    def cells(self, kind: RowKind, name: str, numbers: RowNumbers) -> list[CellValue]:
        """The values of rows in a column, as its type says; None where they have none."""
        form = column(kind, name)
        cells = self.codes(kind, name)[numbers].tolist()
        if form.type in ("word", "words"):
            words = self.table_of_words(kind, name).words[name]
            return [None if cell != cell else words[int(cell)] for cell in cells]  # NaN
        plain = {"flag": bool, "number": float}.get(form.type, int)
        return [None if cell != cell else plain(cell) for cell in cells]

    def counted(self, kind: RowKind, name: str, mask: RowMask, most: int | None = None) -> Counter[CellValue]:
        """Counts the rows of the mask for each value of a column, or each word; no value is none. most: only so many
        values, the most frequent ones, for columns where nearly every row has its own."""
        counts: Counter[CellValue] = Counter()
        if column(kind, name).type == "words":
            for words, many in self._several(kind, name, mask):
                counts.update(dict.fromkeys(words, many))
            return counts
        numbers = np.flatnonzero(mask)
        values = self.codes(kind, name)[numbers]
        _, first, times = np.unique(values, return_index=True, return_counts=True)
        often = np.argsort(-times, kind="stable")[:most]
        cells = zip(self.cells(kind, name, numbers[first[often]]), times[often].tolist(), strict=True)
        return Counter({cell: many for cell, many in cells if cell is not None})

    def times(self, kind: RowKind) -> Floats:
        """By number, the time by which rows are filtered: NaN where a row has none."""
        return self.table(kind).values(TIME[kind])

    def scores_of(self, kind: RowKind) -> Iterable[Mapping[int, float]]:
        """The scores of each scorer, by number of the row."""
        return self._scores[kind].of_each()

    def groups_of(self, kind: RowKind) -> RowNumbers:
        """By number of a row, that of its group."""
        if kind == "groups":
            return np.arange(len(self.groups))
        return self.trajectories.owners if kind == "trajectories" else self.trajectories.owners[self.steps.owners]

    def scores_by(self, kind: RowKind, scorer: str) -> Mapping[int, float]:
        """The scores of one scorer, by number of the row."""
        return self._scores[kind].of(scorer)

    def at(self, kind: RowKind, numbers: Sequence[int] | RowNumbers) -> RowMask:
        """Returns the mask of the rows of these numbers."""
        mask = np.zeros(len(self.table(kind)), bool)
        mask[numbers] = True
        return mask

    def of_members(self) -> RowMask:
        """By number of a trajectory, whether its group's row names it."""
        missing = len(self.trajectories) - len(self._is_member)
        return np.pad(self._is_member, (0, max(0, missing)))[: len(self.trajectories)]

    def saying(self, kind: RowKind, text: str) -> RowMask:
        """Masks the rows whose ids or words hold the text, in any case."""
        needle = as_bytes(text.lower())
        mask = np.fromiter((needle in ids for ids in self.table(kind).lowered), bool, len(self.table(kind)))
        return mask | self.at(kind, self._store.saying(kind, needle))

    def codes(self, kind: RowKind, name: str) -> Floats:
        """A column as it stands: of words, their codes."""
        return self.table(kind).values(name) if column(kind, name).read else self._derived.get(kind, name)

    def table_of_words(self, kind: RowKind, name: str) -> ColumnTable:
        """The table whose words a column has: of one that steps make, theirs."""
        return self.table(kind) if column(kind, name).read else self.steps

    def _several(self, kind: RowKind, name: str, mask: RowMask) -> Iterator[tuple[frozenset[str], int]]:
        """The words of rows, and how many have just these; tags are those of what a row is in, too."""
        sources = [(self.table(kind), np.arange(len(mask)))]
        if name == "tags" and kind == "steps":
            sources.append((self.trajectories, self.steps.owners))
        if name == "tags" and kind != "groups":
            sources.append((self.groups, self.groups_of(kind)))
        codes = np.stack([table.values(name)[owners[mask]] for table, owners in sources])
        together = np.zeros(codes.shape[1])
        for (table, _), of_table in zip(sources, codes, strict=True):
            together = together * (len(table.words[name]) + 1) + np.nan_to_num(of_table, nan=-1) + 1
        _, first, times = np.unique(together, return_index=True, return_counts=True)
        combinations = np.nan_to_num(codes[:, first], nan=-1)
        words = [[*table.words[name], ()] for table, _ in sources]  # the last for none
        for combination, many in zip(combinations.T.astype(int).tolist(), times.tolist(), strict=True):
            yield frozenset(chain(*(each[rank] for each, rank in zip(words, combination, strict=True)))), many

    def _put(self, kind: RowKind, number: int, record: PooledRow, value: bytes) -> None:
        self._coming[kind][number] = record, value
        if len(self._coming[kind]) == COMING_ROWS:
            self._take_in()

    def _take_in(self) -> None:
        """Takes in the rows that came since the last call."""
        for kind, rows in self._coming.items():
            if not rows:
                continue
            numbers, table, records = list(rows), self._tables[kind], [record for record, _ in rows.values()]
            texts = ("\0".join(filter(None, words_of(record))).lower() for record in records)
            texts_by_number = zip(numbers, texts, strict=True)
            self._store.say(kind, [(at, as_bytes(text)) for at, text in texts_by_number if text or table.has(at)])
            if kind != "steps":
                self._store.list_rows(kind, [(at, value) for at, (_, value) in rows.items()])
            for at, record in zip(numbers, records, strict=True):
                self._scores[kind].put(at, scores_of(record), is_new=not table.has(at))
            table.put(numbers, records)
            rows.clear()

    def _set_members(self, number: int, members: list[int]) -> None:
        if len(self._is_member) < len(self._tables["trajectories"]):
            self._is_member = np.concatenate([self._is_member, np.zeros(len(self._tables["trajectories"]), bool)])
        self._is_member[self._members.get(number, [])] = False
        self._is_member[members] = True
        self._members[number] = members

"""Questions to a listed view: a page sorted by any column, what stands before and behind a row, counts, counts per value.

One question, one answer: in every order what has no value comes last, and what is equal is in order of ids, so that an answer
is a function of the rows alone. A cursor names the value and the ids of a row and not its place, so that rows which come or go
meanwhile are neither repeated nor missed. Every question goes through arrays of all rows once and reads the bodies of one page.
"""

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from claw_r1.datapool.view.listing.columns import COLUMNS, Column, RowKind, column
from claw_r1.datapool.view.listing.table import CellValue, Floats, RowNumbers, key_of
from claw_r1.datapool.view.pool_filter import EVERYTHING, PoolFilter
from claw_r1.datapool.view.rows import PooledRow, PoolRows

__all__ = ["COLUMNS", "Column", "ListedRow", "Page", "RowKind", "count", "facets", "neighbours", "page"]
ROWS_MAX = 1000
NO_CURSOR = "that is no cursor of a page: begin at the first one"
LARGEST = sys.float_info.max


class ListedRow(NamedTuple):
    """A row, and its columns by name: JSON values, None where it has none."""

    ids: tuple[str, ...]
    record: PooledRow
    columns: Mapping[str, CellValue]


class Page(NamedTuple):
    """`next` and `previous` are cursors for `after`, None where nothing is left on that side; `before` and `total`: how many rows
    of the filter stand before this page, and how many there are."""

    rows: list[ListedRow]
    next: str | None
    previous: str | None
    before: int
    total: int


class Neighbours(NamedTuple):
    """Ids of the rows before and behind a row, None where there is none, and of a row that the pool has not; its place, None where
    the filter does not find it; how many rows there are."""

    before: tuple[str, ...] | None
    behind: tuple[str, ...] | None
    at: int | None
    total: int


class Cursor(NamedTuple):
    """A place in an order; `backwards`: what is asked for stands before it."""

    kind: str
    sort: str
    descending: bool
    backwards: bool
    value: CellValue
    ids: tuple[str, ...]


def page(
    rows: PoolRows,
    kind: RowKind,
    pool_filter: PoolFilter = EVERYTHING,
    *,
    sort: str = "id",
    descending: bool = False,
    after: str | None = None,
    offset: int = 0,
    limit: int = 100,
    columns: Sequence[str] | None = None,
) -> Page:
    """One page of what a filter finds. after: a cursor of an earlier page of the same order; offset: rows to pass over; columns:
    those that rows tell, all of them when left out.

    Raises ValueError for an unknown column, a cursor that is none or of another order, and a limit that is not 1 to `ROWS_MAX`.
    """
    if not 1 <= limit <= ROWS_MAX or offset < 0:
        raise ValueError(f"a page has 1 to {ROWS_MAX} rows and begins at 0 or later, not {limit} from {offset}")
    names = [
        name for name in (COLUMNS.get(kind, ()) if columns is None else columns) if column(kind, name).type != "ids"
    ]
    order = Order(rows, kind, pool_filter, sort, descending=descending)
    cursor = None if after is None else _decoded(after, (kind, sort, descending))
    numbers = order.beside(cursor, offset, limit)
    before = order.before(int(numbers[0])) if len(numbers) else 0
    ends = [(int(numbers[-1]), False), (int(numbers[0]), True)] if len(numbers) else []
    cursors = [_encoded(Cursor(kind, sort, descending, backwards, *order.place(at))) for at, backwards in ends]
    return Page(
        order.rows(numbers, names),
        cursors[0] if before + len(numbers) < len(order.numbers) and cursors else None,
        cursors[1] if before else None,
        before,
        len(order.numbers),
    )


def neighbours(
    rows: PoolRows,
    kind: RowKind,
    ids: tuple[str, ...],
    pool_filter: PoolFilter = EVERYTHING,
    *,
    sort: str = "id",
    descending: bool = False,
) -> Neighbours:
    """Beside a row within filter and order, whether the filter finds it itself or not. Raises ValueError for an unknown column."""
    order = Order(rows, kind, pool_filter, sort, descending=descending)
    number = order.table.number_of(ids)
    if number < 0 or not order.table.has(number):
        return Neighbours(None, None, None, len(order.numbers))
    value, _ = order.place(number)
    sides = [order.beside(Cursor(kind, sort, descending, back, value, ids), 0, 1) for back in (True, False)]
    before, behind = (order.table.ids(int(side[0])) if len(side) else None for side in sides)
    at = order.before(number) if number in order.numbers else None
    return Neighbours(before, behind, at, len(order.numbers))


def count(rows: PoolRows, kind: RowKind, pool_filter: PoolFilter = EVERYTHING) -> int:
    """Returns how many rows a filter finds."""
    column(kind, "id")
    return int(np.count_nonzero(rows.tables.mask(kind, pool_filter)))


def facets(rows: PoolRows, kind: RowKind, pool_filter: PoolFilter, name: str, limit: int = 100) -> dict[CellValue, int]:
    """Counts the rows of a filter for each value of a column, the most frequent values first, at most `limit`; a column
    of words counts the rows that have each word. A row without a value is not counted.

    Raises ValueError for an unknown column.
    """
    tables, form = rows.tables, column(kind, name)
    mask = tables.mask(kind, pool_filter)
    if form.type == "ids":
        raise ValueError(f"every one of {kind} has an id of its own; count them by another column")
    counts = sorted(tables.counted(kind, name, mask, limit + 1).items(), key=lambda each: (-each[1], str(each[0])))
    return dict(counts[:limit])


class Order:
    """The rows that a filter finds, in the order of a column."""

    def __init__(self, rows: PoolRows, kind: RowKind, pool_filter: PoolFilter, sort: str, *, descending: bool) -> None:
        column(kind, sort)
        self.tables, self.kind, self.sort = rows.tables, kind, sort
        self.table = self.tables.table(kind)
        self.numbers: RowNumbers = np.flatnonzero(self.tables.mask(kind, pool_filter))
        self._by_ids = column(kind, sort).type == "ids"
        self._sign = -1.0 if descending else 1.0
        self._tie_sign = self._sign if self._by_ids else 1.0
        self._ranks = self.table.ranks()[self.numbers] * self._tie_sign
        self._keys = np.zeros(len(self.numbers)) if self._by_ids else self._key(self._values()[self.numbers])

    def beside(self, cursor: Cursor | None, offset: int, limit: int) -> RowNumbers:
        """The first rows behind a cursor, or the last ones before it, in order."""
        keys, ranks, backwards = self._keys, self._ranks, cursor is not None and cursor.backwards
        if cursor is None:
            beside = np.arange(len(keys))
        else:
            side = -1.0 if backwards else 1.0
            keys, ranks = keys * side, ranks * side
            sign = side * self._tie_sign
            try:
                key = side * self._cursor_key(cursor)
            except (TypeError, ValueError, OverflowError) as error:  # a word where numbers are
                raise ValueError(NO_CURSOR) from error
            rank = sign * self.table.place_of_ids(cursor.ids, behind=sign > 0)
            beside = np.flatnonzero((keys > key) | ((keys == key) & (ranks > rank)))
        chosen = beside[_first(keys[beside], ranks[beside], offset + limit)][offset:]
        numbers: RowNumbers = self.numbers[chosen[::-1] if backwards else chosen]
        return numbers

    def before(self, number: int) -> int:
        """Returns how many rows stand before one of them."""
        at = np.searchsorted(self.numbers, number)
        key, rank = self._keys[at], self._ranks[at]
        return int(np.count_nonzero((self._keys < key) | ((self._keys == key) & (self._ranks < rank))))

    def place(self, number: int) -> tuple[CellValue, tuple[str, ...]]:
        """Value and ids of a row."""
        value = None if self._by_ids else self.tables.cells(self.kind, self.sort, np.array([number]))[0]
        return value, self.table.ids(number)

    def rows(self, numbers: RowNumbers, names: Sequence[str]) -> list[ListedRow]:
        columns = [self.tables.cells(self.kind, name, numbers) for name in names]
        listed = []
        for number, *values in zip(numbers.tolist(), *columns, strict=True):
            record = self.tables.record(self.kind, number)
            assert record is not None  # what a filter finds has a row
            listed.append(ListedRow(self.table.ids(number), record, dict(zip(names, values, strict=True))))
        return listed

    def _values(self) -> Floats:
        return self.tables.values(self.kind, self.sort)

    def _key(self, values: Floats) -> Floats:
        """Returns sort keys, so that the first row has the least key, and a row without a value an infinite one."""
        key = np.clip(self._sign * values, -LARGEST, LARGEST)
        key[np.isnan(key)] = np.inf
        return key

    def _cursor_key(self, cursor: Cursor) -> float:
        value = cursor.value
        if self._by_ids:
            return 0.0
        if value is not None and self.sort in self.table.words:
            value = self.table.place_of_word(self.sort, tuple(value) if isinstance(value, list) else value)
        return float(self._key(np.array([np.nan if value is None else float(value)]))[0])


def _first(keys: Floats, ranks: Floats, many: int) -> RowNumbers:
    """Returns the numbers of the first `many` rows, in order."""
    chosen: RowNumbers = np.arange(len(keys))
    if many < len(keys):
        edge = np.partition(keys, many - 1)[many - 1]
        below, level = np.flatnonzero(keys < edge), np.flatnonzero(keys == edge)
        room = many - len(below)
        level = level[np.argpartition(ranks[level], room - 1)[:room]]
        chosen = np.concatenate([below, level])
    order: RowNumbers = chosen[np.lexsort((ranks[chosen], keys[chosen]))]
    return order


def _encoded(cursor: Cursor) -> str:
    """JSON escapes what is no text in ids."""
    return base64.urlsafe_b64encode(json.dumps(cursor, separators=(",", ":")).encode()).decode().rstrip("=")


def _decoded(text: str, order: tuple[str, str, bool]) -> Cursor:
    try:
        fields = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        cursor = Cursor(*fields)._replace(ids=tuple(fields[5]))
        key_of(cursor.ids)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(NO_CURSOR) from error
    if cursor[:3] != order:
        raise ValueError(f"that cursor is of {cursor.kind} by {cursor.sort}: begin this order at its first page")
    return cursor

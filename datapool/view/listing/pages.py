"""Questions to a listed view: all rows of a filter sorted by any column, a row's neighbours, counts, counts per value.

One question, one answer: in every order missing values come last, and equal ones are in order of ids, so an answer
is a function of the rows alone. Every question scans arrays of all rows once.
"""

import sys
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from claw_r1.datapool.view.listing.columns import COLUMNS, Column, RowKind, column
from claw_r1.datapool.view.listing.pool_filter import EVERYTHING, TIME_FORMS, PoolFilter
from claw_r1.datapool.view.listing.table import CellValue, Floats, RowMask, RowNumbers
from claw_r1.datapool.view.rows import PoolRows

__all__ = ["COLUMNS", "Column", "RowKind", "count", "facets", "neighbours", "times"]
LARGEST = sys.float_info.max


class Neighbours(NamedTuple):
    """The place of a row in a sorted list: the ids of the rows before and behind it (None: no such row, or the pool lacks this row),
    its number from the front (None: the filter leaves it out), and how many rows the list has."""

    before: tuple[str, ...] | None
    behind: tuple[str, ...] | None
    at: int | None
    total: int


def neighbours(
    rows: PoolRows,
    kind: RowKind,
    ids: tuple[str, ...],
    pool_filter: PoolFilter = EVERYTHING,
    *,
    sort: str = "id",
    descending: bool = False,
) -> Neighbours:
    """Neighbours of a row in the filtered, sorted list, whether or not the filter finds the row. Raises ValueError for
    an unknown column."""
    order = Order(rows, kind, pool_filter, sort, descending=descending)
    number = order.table.number_of(ids)
    if number < 0 or not order.table.has(number):
        return Neighbours(None, None, None, len(order.numbers))
    ahead, behind = order.ahead(number), order.behind(number)
    at = int(np.count_nonzero(ahead)) if number in order.numbers else None
    return Neighbours(order.end(ahead, last=True), order.end(behind, last=False), at, len(order.numbers))


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


def times(rows: PoolRows, kind: RowKind, pool_filter: PoolFilter, limit: int) -> dict[str, int]:
    """Counts the rows of a filter by minute, hour or day, whichever first needs at most `limit` of them, in the form of its
    field `time`, the newest first; of more days, the newest."""
    moments = rows.tables.times(kind)[rows.tables.mask(kind, pool_filter)]
    moments = moments[(moments >= 0) & (moments < datetime.max.replace(tzinfo=UTC).timestamp() * 1e6)]
    form, seconds, begins, many = min(
        (
            (form, seconds, *np.unique(moments // (seconds * 1e6), return_counts=True))
            for form, seconds in TIME_FORMS.items()
        ),
        key=lambda unit: (len(unit[2]) > limit, unit[1] if len(unit[2]) <= limit else -unit[1]),
    )
    newest = zip(begins[::-1][:limit].tolist(), many[::-1].tolist(), strict=False)
    return {f"{datetime.fromtimestamp(begin * seconds, UTC):{form}}": number for begin, number in newest}


class Order:
    """The rows that a filter finds, in the order of a column."""

    def __init__(self, rows: PoolRows, kind: RowKind, pool_filter: PoolFilter, sort: str, *, descending: bool) -> None:
        """Raises ValueError for an unknown column."""
        by_ids = column(kind, sort).type == "ids"
        self.table = rows.tables.table(kind)
        self.numbers: RowNumbers = np.flatnonzero(rows.tables.mask(kind, pool_filter))
        sign = -1.0 if descending else 1.0
        self._all_ranks: Floats = (self.table.ranks() * (sign if by_ids else 1.0)).astype(np.float64)
        self._all_keys: Floats = np.zeros(len(self.table)) if by_ids else _keys(sign * rows.tables.values(kind, sort))
        self._ranks, self._keys = self._all_ranks[self.numbers], self._all_keys[self.numbers]

    def sorted(self) -> RowNumbers:
        """The numbers of all rows, in order."""
        numbers: RowNumbers = self.numbers[np.lexsort((self._ranks, self._keys))]
        return numbers

    def ahead(self, number: int) -> RowMask:
        """Rows of it that stand before a row of the table."""
        key, rank = self._all_keys[number], self._all_ranks[number]
        ahead: RowMask = (self._keys < key) | ((self._keys == key) & (self._ranks < rank))
        return ahead

    def behind(self, number: int) -> RowMask:
        """Rows of it that stand behind a row of the table."""
        behind: RowMask = ~self.ahead(number) & (self.numbers != number)
        return behind

    def end(self, of_them: RowMask, *, last: bool) -> tuple[str, ...] | None:
        """Ids of the first or the last one of some of its rows; None of none."""
        if not of_them.any():
            return None
        sign = -1.0 if last else 1.0
        keys, ranks = sign * self._keys[of_them], sign * self._ranks[of_them]
        level = np.flatnonzero(keys == keys.min())
        return self.table.ids(int(self.numbers[of_them][level[ranks[level].argmin()]]))


def _keys(values: Floats) -> Floats:
    """Returns sort keys, so that the first row has the least key, and a row without a value an infinite one."""
    keys = np.clip(values, -LARGEST, LARGEST)
    keys[np.isnan(keys)] = np.inf
    return keys

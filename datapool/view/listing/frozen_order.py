"""An order that stays fixed while rows arrive and change, so that a reader's list does not move.

Invariant: it names rows by number, so a place in it is the same row while the order is kept; the row's content is
current.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from claw_r1.datapool.view.listing.columns import RowKind
from claw_r1.datapool.view.listing.pages import Order
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.listing.table import CellValue
from claw_r1.datapool.view.rows import PoolRows


class OrderedRow(NamedTuple):
    """Its columns by name; None: the row is gone."""

    ids: tuple[str, ...]
    columns: Mapping[str, CellValue] | None


class FrozenOrder:
    """The rows that a filter found, in the order of a column, both of one moment."""

    def __init__(self, rows: PoolRows, kind: RowKind, pool_filter: PoolFilter, *, sort: str, descending: bool) -> None:
        """Raises ValueError for an unknown column."""
        order = Order(rows, kind, pool_filter, sort, descending=descending)
        self._kind, self._filter = kind, pool_filter
        self._numbers: NDArray[np.int32] = order.sorted().astype(np.int32)

    def __len__(self) -> int:
        return len(self._numbers)

    def rows(self, rows: PoolRows, offset: int, limit: int, names: Sequence[str]) -> list[OrderedRow]:
        """Rows [offset, offset + limit), as they are now. Raises ValueError for an unknown column."""
        tables = rows.tables
        table = tables.table(self._kind)
        numbers = self._numbers[offset : offset + limit].astype(np.int64)
        columns = [tables.cells(self._kind, name, numbers) for name in names]
        return [
            OrderedRow(table.ids(number), dict(zip(names, cells, strict=True)) if table.has(number) else None)
            for number, *cells in zip(numbers.tolist(), *columns, strict=True)
        ]

    def new(self, rows: PoolRows) -> int:
        """Returns how many rows the filter finds now that it did not find then."""
        mask = rows.tables.mask(self._kind, self._filter)
        mask[self._numbers] = False
        return int(np.count_nonzero(mask))

    def index_of(self, rows: PoolRows, ids: tuple[str, ...]) -> int | None:
        """Returns the index of a row in this order; None: the order lacks it."""
        indices = np.flatnonzero(self._numbers == rows.tables.table(self._kind).number_of(ids))
        return int(indices[0]) if len(indices) else None

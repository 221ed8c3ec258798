"""A view between two processes: its rows in a file (`pool_file.py`), and with them what it has in memory."""

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Raw

from claw_r1.datapool.pool_file import PoolFile, file_path
from claw_r1.datapool.view import records as records_module
from claw_r1.datapool.view import rows as rows_module
from claw_r1.datapool.view import store as store_module
from claw_r1.datapool.view.rows import PoolRows, RowsSnapshot
from claw_r1.eventlog.records import Place
from claw_r1.schemas.topics import Catalogue

GONE_MAX = 20_000
"""Rows that are gone from the pool and still have their place in a file."""
listed_rows = partial(PoolRows, listed=True)
LISTED = ""
"""The role of a view that keeps all groups, and is listed."""
ROWS = msgspec.msgpack.Decoder(RowsSnapshot)  # one, made as this is imported: see `PREPARED` of schemas/codec.py


def view_path(directory: Path, catalogue: Catalogue, role: str = LISTED) -> Path:
    """The file of a pool's view. role: who keeps it, where it does not keep all."""
    modules = [records_module, rows_module, store_module, sys.modules[__name__]]
    if role == LISTED:
        from claw_r1.datapool.view.listing import columns, scores, table, tables  # numpy is not where nothing is listed

        modules += [columns, scores, table, tables]
    return file_path(directory, catalogue, role, modules)


class ViewFile(PoolFile):
    """The file of one view. Used by one thread at a time."""

    def __init__(
        self,
        path: Path,
        log_id: str,
        now_s: Callable[[], float] = time.time,
        empty: Callable[[], PoolRows] = listed_rows,
    ) -> None:
        """empty: makes the rows that a file is read into, and those of a start without one."""
        super().__init__(path, log_id, now_s)
        self._empty = empty

    def restored(self, ends: Callable[[], Mapping[Place, int]]) -> tuple[PoolRows, Mapping[Place, int]]:
        """Rows as they were saved, and the offsets to read on at. Where there is no use for the file: no rows, and no offsets."""
        rows = self._empty()
        offsets = self.restore(rows.store, ends, partial(_take, rows))
        return (self._empty(), {}) if offsets is None else (rows, offsets)

    def save(self, rows: PoolRows, offsets: Mapping[Place, int]) -> bool:
        """Keep the rows as of these offsets; False: another process keeps them. Raises sqlite3.Error, OSError."""
        return self.keep(rows.store, offsets, lambda: Raw(msgspec.msgpack.encode(rows.snapshot())))

    def close(self, rows: PoolRows) -> None:
        """Let the file go, after the last `save`. Nothing can be asked of the rows afterwards."""
        self.end(rows.store)


def _take(rows: PoolRows, packed: Raw) -> None:
    """Raises ValueError where the file is not worth going on with."""
    rows.restore(ROWS.decode(packed))
    if rows.records.gone > GONE_MAX and 2 * rows.records.gone > rows.records.size:
        raise ValueError("most of its rows are gone from the pool")

"""A view between two processes: a file under a name that has its rows as of some offsets, so that a start reads the log's tail.

Invariant: a file is of one moment, or it is not used. It is left, and the log read from the beginning, when it is of other topics, older
than tombstones are kept, or damaged; and one process at a time writes it, while others start from what it saved last.
"""

import inspect
import os
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec
import structlog
from msgspec import Struct

from claw_r1.datapool import FOLD_VERSION
from claw_r1.datapool.view import records as records_module
from claw_r1.datapool.view import rows as rows_module
from claw_r1.datapool.view import store as store_module
from claw_r1.datapool.view.rows import PoolRows, RowsSnapshot
from claw_r1.eventlog.locks import take_lock
from claw_r1.eventlog.records import Place
from claw_r1.schemas.topics import COMPACTION, DAY_MS, Catalogue

log = structlog.get_logger()

AGE_MAX_S = (int(COMPACTION["delete.retention.ms"]) - DAY_MS) / 1000
"""A day later tombstones may be gone that the rows of a file have not seen."""
CLOCK_S = 60.0
"""A clock may be set back so far without a word."""
GONE_MAX = 20_000
"""Rows that are gone from the pool and still have their place in a file."""
UNUSED_MAX_S = 30 * 86400.0
CHUNK_BYTES = 16 << 20
CRC_BYTES = 4
listed_rows = partial(PoolRows, listed=True)
LISTED = ""
"""The role of a view that keeps all groups, and is listed."""
SUM_SUFFIX = ".sum"


class ViewSnapshot(Struct, array_like=True):
    """The rows of a file, and where they come from. log_id: of their topics, as `topics_id`."""

    log_id: str
    read_s: float
    """The time of the last moment at which all that stood in the topics had been read."""
    offsets: list[tuple[str, int, int]]
    """Topic, partition, and the offset that reading goes on at."""
    rows: RowsSnapshot


SNAPSHOTS = msgspec.msgpack.Decoder(ViewSnapshot)  # one, made as this is imported: see `PREPARED` of schemas/codec.py


def view_path(directory: Path, catalogue: Catalogue, role: str = LISTED) -> Path:
    """The file of a pool's view. Of another generation, version of the folds, or code that makes or reads what is in it, it is another one.

    role: who keeps it, where it does not keep all.
    """
    modules = [records_module, rows_module, store_module, sys.modules[__name__]]
    if role == LISTED:
        from claw_r1.datapool.view.listing import columns, scores, table, tables  # numpy is not where nothing is listed

        modules += [columns, scores, table, tables]
    layout = sha256("".join(map(inspect.getsource, modules)).encode()).hexdigest()[:8]
    return directory / f"{catalogue.prefix}.g{catalogue.generation}.f{FOLD_VERSION}.{role}{layout}.view"


class ViewFile:
    """The file of one view. Used by one thread at a time."""

    def __init__(
        self,
        path: Path,
        log_id: str,
        now_s: Callable[[], float] = time.time,
        empty: Callable[[], PoolRows] = listed_rows,
    ) -> None:
        """empty: makes the rows that a file is read into, and those of a start without one."""
        self.path, self._empty = path, empty
        self.read_s = now_s()
        """The time as of which the rows are known to lack nothing; of rows that are read from the beginning, when that was begun."""
        self._log_id, self._now_s = log_id, now_s
        self._lock: int | None = None
        self._others = False

    def restored(self, ends: Callable[[], Mapping[Place, int]]) -> tuple[PoolRows, Mapping[Place, int]]:
        """Rows as they were saved, and the offsets to read on at. Where there is no use for the file, which the log says in a line: no rows,
        and no offsets. ends: asked for those of the log where there is a file."""
        rows = self._empty()
        try:
            if not self.exists():
                return rows, {}
            now = ends()  # before anything is held
            self._others = not self._locked()
            snapshot = self._read(rows, now)
            rows.restore(snapshot.rows)
            if rows.records.gone > GONE_MAX and 2 * rows.records.gone > rows.records.size:
                raise ValueError("most of its rows are gone from the pool")
        except (sqlite3.Error, OSError, msgspec.MsgspecError, ValueError, LookupError) as error:
            log.warning("view_begun_again", file=str(self.path), reason=str(error))
            rows.store.close()
            if _is_damage(error):
                self.discard()
            else:
                self._others = True
            return self._empty(), {}
        self.read_s = snapshot.read_s
        return rows, {(topic, partition): offset for topic, partition, offset in snapshot.offsets}

    def exists(self) -> bool:
        """Returns whether there is a file, for who may look."""
        with suppress(OSError):
            return self.path.exists()
        return False

    def caught_up(self) -> None:
        """Notes that all rows are read up to now. After a pause longer than tombstones are kept, the file is given up."""
        now_s = self._now_s()
        if not -CLOCK_S <= now_s - self.read_s <= AGE_MAX_S:
            self.discard()
            self._others = True
        self.read_s = now_s

    def _read(self, rows: PoolRows, ends: Mapping[Place, int]) -> ViewSnapshot:
        """Raises ValueError where the file is not to be used, and whatever a damaged one raises."""
        is_known_sound = not self._others and self._has_its_sum()
        packed = rows.store.copy(self.path) if self._others else rows.store.open(self.path)
        if not is_known_sound and not rows.store.is_sound():
            raise ValueError("it is damaged")
        if zlib.crc32(packed[CRC_BYTES:]).to_bytes(CRC_BYTES, "big") != packed[:CRC_BYTES]:
            raise ValueError("its snapshot is damaged")
        snapshot = SNAPSHOTS.decode(packed[CRC_BYTES:])
        if snapshot.log_id != self._log_id:
            raise ValueError("it is of other topics: of another broker, or made anew")
        if not -CLOCK_S <= self._now_s() - snapshot.read_s <= AGE_MAX_S:
            raise ValueError("it is older than tombstones are kept, or this machine's clock went back")
        if any(offset > ends.get((topic, partition), 0) for topic, partition, offset in snapshot.offsets):
            raise ValueError("the topics end before it")
        return snapshot

    def save(self, rows: PoolRows, offsets: Mapping[Place, int]) -> bool:
        """Keep the rows as of these offsets; False: another process keeps them. Raises sqlite3.Error, OSError."""
        if self._others or not self._locked():
            return False
        if rows.store.path != self.path:
            self.discard()  # with what is left of another's: sqlite takes any journal of that name for that of the new file
        snapshot = ViewSnapshot(
            self._log_id, self.read_s, [(*place, at) for place, at in offsets.items()], rows.snapshot()
        )
        packed = msgspec.msgpack.encode(snapshot)
        rows.store.save(zlib.crc32(packed).to_bytes(CRC_BYTES, "big") + packed, self.path)
        return True

    def close(self, rows: PoolRows) -> None:
        """Let the file go, after the last `save`. Nothing can be asked of the rows afterwards."""
        rows.store.close()
        if self._lock is None:
            return
        try:
            if rows.store.path == self.path:
                new = self._sum_path.with_suffix(".new")
                new.write_text(_sum(self.path))
                new.replace(self._sum_path)
        except OSError as error:
            log.warning("view_not_closed", file=str(self.path), error=str(error))
        finally:
            os.close(self._lock)
            self._lock = None

    def discard(self) -> None:
        """There is no such file any more, but where another process writes it; the next start reads the log."""
        if self._lock is not None:
            _remove(self.path)

    @property
    def _sum_path(self) -> Path:
        return self.path.with_suffix(SUM_SUFFIX)

    def _locked(self) -> bool:
        """Returns whether this process is the one that writes the file."""
        if self._lock is not None:
            return True
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = take_lock(self.path.with_suffix(".lock"))
        if self._lock is None:
            return False
        sweep(self.path.parent, self._now_s() - UNUSED_MAX_S)
        return True

    def _has_its_sum(self) -> bool:
        """Returns whether the file was closed in order, and is as it was then. Raises ValueError where it is not."""
        with suppress(FileNotFoundError):
            expected = self._sum_path.read_text()
            self._sum_path.unlink()  # it holds until something is written
            if expected != _sum(self.path):
                raise ValueError("it is damaged, or another one was put in its place")
            return True
        return False


def _is_damage(error: Exception) -> bool:
    """Returns whether the file is to blame; not where there is no access to it, or somebody is at it. An empty file has no table, which is an error of
    SQL's."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode == sqlite3.SQLITE_ERROR
    return not isinstance(error, OSError)


def _sum(path: Path) -> str:
    crc = 0
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            crc = zlib.crc32(piece, crc)
    return f"{crc:08x}"


def _remove(path: Path) -> None:
    """With its journal: sqlite would take that for the one of a new file. The file goes first, and so is never there without its journal."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", path.with_suffix(SUM_SUFFIX).name):
        path.with_name(name).unlink(missing_ok=True)


def sweep(directory: Path, before_s: float) -> None:
    """Remove the files of views that nobody has used since."""
    for path in directory.glob("*.view"):
        with suppress(OSError):
            if path.stat().st_mtime < before_s:
                _remove(path)

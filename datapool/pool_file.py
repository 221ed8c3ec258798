"""The pool's rows between processes: a named file with them as of some offsets, so that a start reads the log's tail.

Invariant: a file is of one moment, or it is not used. It is ignored, and the log read from
the beginning, if it is of other topics, older than tombstones are kept, or damaged;
and one process at a time writes it, while others start from its last save.
"""

import inspect
import os
import re
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import msgspec
import structlog
from msgspec import Raw, Struct

from claw_r1.datapool import FOLD_VERSION, pool_database
from claw_r1.datapool.pool_database import NEW_SUFFIX, PoolDatabase
from claw_r1.eventlog.locks import take_lock
from claw_r1.eventlog.records import Place
from claw_r1.schemas.topics import COMPACTION, DAY_MS, Catalogue

log = structlog.get_logger()

AGE_MAX_S = (int(COMPACTION["delete.retention.ms"]) - DAY_MS) / 1000
"""A day later tombstones may be gone that the rows of a file have not seen."""
CLOCK_S = 60.0
"""A clock may be set back so far without a word."""
UNUSED_MAX_S = 30 * 86400.0
CHUNK_BYTES = 16 << 20
CRC_BYTES = 4
VIEW_SUFFIX, SUM_SUFFIX = ".view", ".sum"
OURS = re.compile(r".+\.g\d+\.f\d+(?:\..+)?\.(?:view|sum|new)")
"""The names of files of ours: the folder may be one that others use, too."""
NOTHING = Raw(msgspec.msgpack.encode(None))


class FileSnapshot(Struct, array_like=True):
    """The origin of a file's rows, and what else belongs to them. log_id: of their topics, as `topics_id`."""

    log_id: str
    read_s: float
    """The time of the last moment at which all that stood in the topics had been read."""
    offsets: list[tuple[str, int, int]]
    """Topic, partition, and the offset that reading goes on at."""
    more: Raw


SNAPSHOTS = msgspec.msgpack.Decoder(FileSnapshot)  # one, made as this is imported: see `PREPARED` of schemas/codec.py


def file_path(directory: Path, catalogue: Catalogue, role: str, modules: Iterable[ModuleType]) -> Path:
    """The file of a role. Another generation, fold version, or code that makes or reads its content has another file.

    modules: that code, without the part that all files share.
    """
    code = [*modules, pool_database, sys.modules[__name__]]
    layout = sha256("".join(map(inspect.getsource, code)).encode()).hexdigest()[:8]
    return directory / f"{catalogue.prefix}.g{catalogue.generation}.f{FOLD_VERSION}.{role}{layout}{VIEW_SUFFIX}"


class PoolFile:
    """One such file. Used by one thread at a time."""

    def __init__(self, path: Path, log_id: str, now_s: Callable[[], float] = time.time) -> None:
        self.path = path
        self.read_s = now_s()
        """The time as of which the rows are known to lack nothing; of rows that are read from the beginning,
        when that was begun."""
        self._log_id, self._now_s = log_id, now_s
        self._lock: int | None = None
        self._others = False

    def restore(
        self,
        store: PoolDatabase,
        ends: Callable[[], Mapping[Place, int]],
        take: Callable[[Raw], None] = lambda _more: None,
    ) -> Mapping[Place, int] | None:
        """Puts the rows as they were saved into the store; the offsets to read on at. None: the file is
        unusable, which is logged in a line, and the store is closed. ends: called for the log's ends if
        there is a file. take: gets the other saved data; may raise ValueError or LookupError."""
        try:
            if not self.exists():
                store.close()
                return None
            now = ends()  # before anything is held
            self._others = not self.locked()
            snapshot = self._read(store, now)
            take(snapshot.more)
        except (sqlite3.Error, OSError, msgspec.MsgspecError, ValueError, LookupError) as error:
            log.warning("pool_file_begun_again", file=str(self.path), reason=str(error))
            store.close()
            if _is_damage(error):
                self.discard()
            else:
                self._others = True
            return None
        self.read_s = snapshot.read_s
        return {(topic, partition): offset for topic, partition, offset in snapshot.offsets}

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

    def _read(self, store: PoolDatabase, ends: Mapping[Place, int]) -> FileSnapshot:
        """Raises ValueError where the file is not to be used, and whatever a damaged one raises."""
        is_known_sound = not self._others and self._has_its_sum()
        packed = store.copy(self.path) if self._others else store.open(self.path)
        if not is_known_sound and not store.is_sound():
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

    def keep(
        self, store: PoolDatabase, offsets: Mapping[Place, int], more: Callable[[], Raw] = lambda: NOTHING
    ) -> bool:
        """Keep the rows as of these offsets; False: another process keeps them. Raises sqlite3.Error, OSError."""
        if self._others or not self.locked():
            return False
        if store.path != self.path:
            self.discard()  # with what is left of another's: sqlite takes any journal of that name for that of the new file
        snapshot = FileSnapshot(self._log_id, self.read_s, [(*place, at) for place, at in offsets.items()], more())
        packed = msgspec.msgpack.encode(snapshot)
        store.save(zlib.crc32(packed).to_bytes(CRC_BYTES, "big") + packed, self.path)
        return True

    def end(self, store: PoolDatabase) -> None:
        """Let the file go, after the last `keep`. Nothing can be asked of the store afterwards."""
        store.close()
        if self._lock is None:
            return
        try:
            if store.path == self.path:
                new = self._sum_path.with_suffix(NEW_SUFFIX)
                new.write_text(_sum(self.path))
                new.replace(self._sum_path)
        except OSError as error:
            log.warning("pool_file_not_closed", file=str(self.path), error=str(error))
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

    def locked(self) -> bool:
        """Returns whether this process is from now on the one that writes the file. Raises OSError."""
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
    """Returns whether the file is to blame; not where there is no access to it, or somebody is at it. An empty file has
    no table, which is an error of SQL's."""
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
    """With its journal: sqlite would take that for the one of a new file. The file goes first, and so is never there
    without its journal."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", path.with_suffix(SUM_SUFFIX).name):
        path.with_name(name).unlink(missing_ok=True)


def sweep(directory: Path, before_s: float) -> None:
    """Remove the files that nobody has used since, and what a process that was killed in a save had begun. Locks stay: they are
    empty, and somebody may be about to take one."""
    for path in directory.glob("*.*"):
        with suppress(OSError):
            if OURS.fullmatch(path.name) and path.stat().st_mtime < before_s:
                _remove(path) if path.suffix == VIEW_SUFFIX else path.unlink()

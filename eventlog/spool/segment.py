"""One file of the spool: appended to by one thread, read when it is closed, removed when the log has all of it."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from claw_r1.eventlog.errors import SpoolFull
from claw_r1.eventlog.spool.directory import SUFFIX
from claw_r1.runtime.files import sync


class Segment:
    """The content of a segment: whole records only. `bytes` is the length up to which it was fsynced."""

    def __init__(self, path: Path, *, records: int = 0, size: int = 0, oldest_s: float | None = None) -> None:
        self.path = path
        self.records = records
        self.bytes = size
        self.oldest_s = oldest_s

    def remove(self) -> None:
        """Everything in it is in the log."""
        self.path.unlink(missing_ok=True)


class OpenSegment(Segment):
    """The segment that is being written."""

    def __init__(self, path: Path) -> None:
        """Raises SpoolFull when the disk refuses."""
        super().__init__(path)
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as refused:
            raise _full(refused) from refused
        try:
            sync(path.parent)
        except OSError as refused:
            self.close()
            raise _full(refused) from refused

    def append(self, frames: Sequence[bytes], now_s: float) -> int:
        """All frames, on the disk when this returns how many bytes they are. Raises SpoolFull: then none of them counts."""
        content = b"".join(frames)
        try:
            self._write(content)
            os.fdatasync(self._file)
        except OSError as refused:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.bytes)
                os.lseek(self._file, self.bytes, os.SEEK_SET)
            raise _full(refused) from refused
        self.bytes += len(content)
        self.records += len(frames)
        self.oldest_s = self.oldest_s or now_s
        return len(content)

    def close(self) -> None:
        """Nothing more is written. An empty segment is removed."""
        # A disk that failed may refuse this, too. What was taken is fsynced, and an empty file that stays harms nobody.
        with contextlib.suppress(OSError):
            os.close(self._file)
        if not self.records:
            with contextlib.suppress(OSError):
                self.remove()

    def _write(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._file, rest) :]


def segment_path(folder: Path, number: int) -> Path:
    """Name of a directory's segment; names sort by age."""
    return folder / f"{number:010}{SUFFIX}"


def _full(refused: OSError) -> SpoolFull:
    return SpoolFull(f"the spool's disk refuses: {refused.strerror}")

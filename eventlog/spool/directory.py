"""The owner of each spool: one directory per process below a common root, held by a file lock that dies with its owner.

Invariant: at most one living process has a directory. Directories are made, taken and removed under the root's own
lock, so nobody takes one that is just being made, and nobody waits for one that is just being removed.
"""

import os
import shutil
from pathlib import Path

from claw_r1.eventlog.locks import exclusive, take_lock
from claw_r1.runtime.files import sync

LOCK = "owner.lock"
SUFFIX = ".spool"
PRIVATE = 0o700  # prompts and replies lie here


class SpoolDirectory:
    """A directory that this process holds until `release`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    def segments(self) -> list[Path]:
        """Its segments, oldest first."""
        return sorted(self.path.glob(f"*{SUFFIX}"))

    def remove(self) -> None:
        """Removes the directory, segments and all, and gives it up."""
        with exclusive(self.path.parent / ".lock"):
            shutil.rmtree(self.path, ignore_errors=True)
            self.release()

    def release(self) -> None:
        """Gives the directory up; what is in it is for whoever takes it next."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def create(root: Path, name: str) -> SpoolDirectory:
    """A new directory of this process's own below `root`. Raises OSError."""
    root.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    with exclusive(root / ".lock"):
        path = root / name
        path.mkdir(mode=PRIVATE)
        held = _take(path)
        assert held is not None, "nobody else knows the name"
    sync(root)
    return held


def adopt_orphans(root: Path) -> list[SpoolDirectory]:
    """Takes every directory whose owner is gone, oldest first."""
    with exclusive(root / ".lock"):
        candidates = sorted((path for path in root.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
        return [held for path in candidates if (held := _take(path)) is not None]


def _take(path: Path) -> SpoolDirectory | None:
    lock = take_lock(path / LOCK)
    return None if lock is None else SpoolDirectory(path, lock)

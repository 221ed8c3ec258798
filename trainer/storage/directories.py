"""Directories that appear whole or not at all, whatever fails or is killed meanwhile."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path


class PartialDirectory:
    """A directory that is being filled, beside `target` and under a name that begins with a dot."""

    def __init__(self, target: Path) -> None:
        """Raises OSError."""
        self.target = target
        self.path = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}")
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        self._made = os.open(self.path, os.O_RDONLY)  # held, so that no other directory gets its inode

    def fill(self, write: Callable[[], object]) -> None:
        """Let `write` fill it, then give it its name; where anything is raised, nothing of it is left. Raises OSError."""
        try:
            write()
            self._publish()
        except BaseException:
            self.abandon()
            raise
        os.close(self._made)

    def abandon(self) -> None:
        """Nothing of it is left. Once, and not after `fill` returned."""
        os.close(self._made)
        shutil.rmtree(self.path, ignore_errors=True)

    def _publish(self) -> None:
        """Its files are on disk before it has its name.

        Raises FileNotFoundError where another incarnation cleared it away meanwhile: what was written since is not all of it.
        """
        if os.fstat(self._made).st_ino != self.path.stat().st_ino:
            raise FileNotFoundError(f"{self.path} was removed while it was being filled")
        for path in [*self.path.rglob("*"), self.path]:
            _sync(path)
        try:
            self.path.rename(self.target)
        except OSError:
            if not self.target.exists():
                raise
            shutil.rmtree(self.path)  # another incarnation was faster; same name, same bytes
        _sync(self.target.parent)


def remove(directory: Path) -> None:
    """Deletes a directory, which never looks whole meanwhile: a kill in between leaves a name for `clear_partial`."""
    hidden = directory.with_name(f".{directory.name}.removed")
    shutil.rmtree(hidden, ignore_errors=True)
    directory.rename(hidden)
    shutil.rmtree(hidden)


def clear_partial(folder: Path) -> None:
    """Remove what a killed process left unfinished. Only where no other trainer of this run writes any more."""
    for path in folder.glob(".*") if folder.is_dir() else ():
        shutil.rmtree(path, ignore_errors=True)


def _sync(path: Path) -> None:  # as `runtime.files` has it, which a GPU check does without
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""File locks that say which process owns what lies beside them, and die with that process."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def take_lock(path: Path) -> int | None:
    """The descriptor that holds the lock until it is closed; None: another process has it. Raises OSError."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def take_lock_of_folder(path: Path) -> int | None:
    """Takes the lock of the folder itself, as `take_lock`; None also where it is gone. Raises OSError, also of a file system that has
    no locks of folders, as NFS."""
    lock = None
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.lstat()  # who had it before may have removed it
    except OSError as error:
        if lock is not None:
            os.close(lock)
        if isinstance(error, (BlockingIOError, FileNotFoundError)):
            return None
        raise
    return lock


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds the lock at `path`, for which another process waits. Raises OSError."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)

"""A file lock that says which process owns what lies beside it, and dies with that process."""

import fcntl
import os
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

"""Small files that one process writes and others read at any moment."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """A reader sees the old text or the new one, never a part. Raises OSError: then the old one is there, and nothing beside it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Writes what a file holds, or what a folder names, to the disk: a power failure takes it no more. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_secret(path: Path, text: str) -> None:
    """Writes a new file that only its owner can read, from its first byte on."""
    path.unlink(missing_ok=True)  # one that is there keeps who may read it
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text)

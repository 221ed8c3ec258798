"""Directories that appear whole or not at all, whatever fails or is killed meanwhile."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def fill(target: Path, write: Callable[[Path], None]) -> Path:
    """`target`, filled by `write` under another name first; one that exists is left as it is.

    Nothing is left behind when `write` raises. What a killed process leaves begins with a dot.
    """
    if target.exists():
        return target
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        write(partial)
        _publish(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return target


def _publish(partial: Path, target: Path) -> None:
    """Gives a finished directory its name. Its files are on disk before it has it."""
    for path in [*partial.rglob("*"), partial]:
        _sync(path)
    try:
        partial.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(partial)  # another incarnation was faster; same name, same bytes
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Small files that one process writes and others read at any moment."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """A reader sees the old text or the new one, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)

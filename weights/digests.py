"""The digest of a version: blake3 by several threads, or sha256 as earlier versions have it. Its text says which.

A run keeps the algorithm of its first version, so that equal bytes have one name in it.
"""

import hashlib
import os
import re
from typing import Protocol

from claw_r1.weights.errors import ManifestMismatch

BLAKE3, SHA256 = "b3", "sha256"
THREADS_MAX = 4
"""More gain little, and a trainer's next batch needs the cores."""
SHOWN = 12
_TEXT = re.compile(r"(?:(b3):)?[0-9a-f]{64}")


class Hasher(Protocol):
    """The part that hashlib and blake3 have in common."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Take the next bytes."""

    def hexdigest(self) -> str:
        """The digest of all bytes so far."""


class Digest:
    """The digest of bytes that come in order."""

    def __init__(self, algorithm: str) -> None:
        """algorithm: BLAKE3 or SHA256."""
        self._prefix = f"{algorithm}:" if algorithm != SHA256 else ""
        self._hasher = _blake3() if algorithm == BLAKE3 else hashlib.sha256()

    def update(self, data: bytes | memoryview) -> None:
        """Take the next bytes; other threads of Python run meanwhile."""
        self._hasher.update(data)

    def text(self) -> str:
        """Returns `b3:` and 64 hexadecimal digits, or the digits alone of sha256."""
        return self._prefix + self._hasher.hexdigest()


def algorithm_of(digest: str) -> str:
    """Returns the algorithm that a digest's text names. Raises ManifestMismatch for another text: it is to be a file's name."""
    if (match := _TEXT.fullmatch(digest)) is None:
        raise ManifestMismatch(f"{digest[:80]!r} is no digest that can be checked here")
    return match[1] or SHA256


def short(digest: str) -> str:
    """Returns enough of a digest to tell versions apart, for names and messages."""
    return digest.rpartition(":")[2][:SHOWN]


def _blake3() -> Hasher:
    import blake3  # here: whoever reads manifests alone has no need of it

    hasher: Hasher = blake3.blake3(max_threads=min(THREADS_MAX, os.cpu_count() or 1))
    return hasher

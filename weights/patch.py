"""A version as what changed since the one before it, for hosts that have that one: a few hundredths of its bytes.

At the rates by which policies learn, most weights of bfloat16 keep their bits in a step. Both flat files are compared by words of 16
bits; a patch is the number of changed words, the unchanged words before each of them, and their values, all little-endian. Whoever
applies it hashes the result, as with bytes from anywhere else: a patch can be useless, and never wrong unnoticed.
"""

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from claw_r1.weights.digests import THREADS_MAX
from claw_r1.weights.errors import TransferFailed
from claw_r1.weights.manifest import TensorShape, WeightsManifest

WORD = np.dtype("<u2")
GAP_MAX = 0xFFFF
BLOCK_WORDS = 4 << 20
SHARE_MAX = 0.25
"""The largest share of the whole version's bytes: a larger patch is not worth its work."""

Positions = npt.NDArray[np.int64]


def patch_of(before: memoryview, after: memoryview) -> bytes | None:
    """The patch between two flat files; None where they are of different lengths, or differ too much, which takes no more memory to
    find out than the largest patch has. Several threads compare."""
    if len(before) != len(after) or len(before) % WORD.itemsize:
        return None
    old, new = np.frombuffer(before, WORD), np.frombuffer(after, WORD)

    def changed(start: int) -> Positions:
        block = slice(start, start + BLOCK_WORDS)
        return np.flatnonzero(old[block] != new[block]) + start

    largest = int(SHARE_MAX * len(after)) // (2 * WORD.itemsize)
    last, gaps, values = -1, bytearray(), bytearray()
    threads = min(THREADS_MAX, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        for begin in range(0, len(new), threads * BLOCK_WORDS):
            blocks = range(begin, min(len(new), begin + threads * BLOCK_WORDS), BLOCK_WORDS)
            for positions in pool.map(changed, blocks):
                named = _without_wide_gaps(positions, last)
                gaps += (np.diff(named, prepend=last) - 1).astype(WORD).tobytes()
                values += new[named].tobytes()
                last = int(named[-1]) if len(named) else last
            if len(values) > largest * WORD.itemsize:
                return None
    return (len(values) // WORD.itemsize).to_bytes(8, "little") + gaps + values


def _without_wide_gaps(positions: Positions, last: int) -> Positions:
    """Names some unchanged words, too, where a gap is wider than its number can say. last: the position before these."""
    gaps = np.diff(positions, prepend=last) - 1
    wide = np.flatnonzero(gaps > GAP_MAX)
    fillers = [np.arange(positions[at] - gaps[at] + GAP_MAX, positions[at], GAP_MAX + 1) for at in wide]
    return np.sort(np.concatenate([positions, *fillers])) if fillers else positions


class Patched:
    """The bytes of a version, as `host_copies.TensorBytes`: from a flat copy
    of another one and the patches since, the oldest first."""

    def __init__(self, base: memoryview, bodies: Sequence[bytes | bytearray], manifest: WeightsManifest) -> None:
        """Raises TransferFailed for a patch that is none."""
        self._patches = [_words(body) for body in bodies]
        self._base = base
        self._begins: Mapping[TensorShape, int] = dict(manifest.offsets())
        if len(base) < manifest.bytes_flat:
            raise TransferFailed("the copy to be patched is of other tensors")

    def readinto(self, tensor: TensorShape, offset: int, piece: memoryview) -> None:
        """Fill the piece from byte `offset` of the tensor on; pieces begin at whole words."""
        begin = self._begins[tensor] + offset
        piece[:] = self._base[begin : begin + len(piece)]
        first = begin // WORD.itemsize
        whole = len(piece) // WORD.itemsize
        words = np.frombuffer(piece[: whole * WORD.itemsize], WORD)
        for positions, values in self._patches:
            low, high = np.searchsorted(positions, [first, first + whole])
            words[positions[low:high] - first] = values[low:high]
            if len(piece) % WORD.itemsize and high < len(positions) and positions[high] == first + whole:
                piece[-1] = int(values[high]) & 0xFF


@contextmanager
def patched(path: Path, bodies: Sequence[bytes | bytearray], manifest: WeightsManifest) -> Iterator[Patched]:
    """The version that patches make of the flat copy in a file. Raises TransferFailed, OSError."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
        memoryview(mapped) as flat,
    ):
        yield Patched(flat, bodies, manifest)


def _words(body: bytes | bytearray) -> tuple[Positions, npt.NDArray[np.uint16]]:
    """Returns where a patch changes words, in order, and to what."""
    count = int.from_bytes(body[:8], "little")
    if len(body) != 8 + 2 * WORD.itemsize * count:
        raise TransferFailed(f"a patch of {count} words has {len(body)} bytes")
    gaps, values = np.frombuffer(body, WORD, offset=8).reshape(2, count)
    return np.cumsum(gaps.astype(np.int64) + 1) - 1, values

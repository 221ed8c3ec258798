"""A version as what changed since the one before it, for hosts that have that one: a few hundredths of its bytes.

At the rates by which policies learn, most weights of bfloat16 keep their bits in a step. Both flat files are compared by words of 16
bits; a patch is the number of changed words, the unchanged words before each of them, and their values, all little-endian. Whoever
applies it hashes the result, as with bytes from anywhere else: a patch can be useless, and never wrong unnoticed.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from claw_r1.weights.digests import THREADS_MAX
from claw_r1.weights.errors import TransferFailed
from claw_r1.weights.manifest import TensorShape, WeightsManifest

WORD = np.dtype("<u2")
GAP_MAX = 0xFFFF
BLOCK_WORDS = 4 << 20
SHARE_MAX = 0.5
"""The largest share of the whole version's bytes: a larger patch is not worth its work."""

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Patch:
    """The bytes that make a version of the one with the digest `base`."""

    base: str
    body: bytes


def patch_of(before: memoryview, after: memoryview) -> bytes | None:
    """The patch between two flat files; None where they are of different lengths, or differ too much. Several threads compare."""
    if len(before) != len(after) or len(before) % WORD.itemsize:
        return None
    old, new = np.frombuffer(before, WORD), np.frombuffer(after, WORD)

    def changed(start: int) -> Positions:
        block = slice(start, start + BLOCK_WORDS)
        return np.flatnonzero(old[block] != new[block]) + start

    with ThreadPoolExecutor(min(THREADS_MAX, os.cpu_count() or 1)) as pool:
        positions = np.concatenate([np.zeros(0, np.int64), *pool.map(changed, range(0, len(new), BLOCK_WORDS))])
    positions = _without_wide_gaps(positions)
    if 2 * WORD.itemsize * len(positions) > SHARE_MAX * len(after):
        return None
    gaps = np.diff(positions, prepend=-1) - 1
    return len(positions).to_bytes(8, "little") + gaps.astype(WORD).tobytes() + new[positions].tobytes()


def _without_wide_gaps(positions: Positions) -> Positions:
    """Names some unchanged words, too, where a gap is wider than its number can say."""
    gaps = np.diff(positions, prepend=-1) - 1
    before = np.concatenate([[-1], positions[:-1]])
    fillers = [np.arange(before[at] + 1 + GAP_MAX, positions[at], GAP_MAX + 1) for at in np.flatnonzero(gaps > GAP_MAX)]
    return np.sort(np.concatenate([positions, *fillers])) if fillers else positions


class Patched:
    """The bytes of a version (`claw_r1.weights.host_copies.TensorBytes`), from a flat copy of another one and a patch."""

    def __init__(self, base: memoryview, body: bytes, manifest: WeightsManifest) -> None:
        """Raises TransferFailed for a patch that is none."""
        count = int.from_bytes(body[:8], "little")
        if len(body) != 8 + 2 * WORD.itemsize * count:
            raise TransferFailed(f"a patch of {count} words has {len(body)} bytes")
        gaps, self._values = np.frombuffer(body, WORD, offset=8).reshape(2, count)
        self._positions: Positions = np.cumsum(gaps.astype(np.int64) + 1) - 1
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
        low, high = np.searchsorted(self._positions, [first, first + whole])
        words = np.frombuffer(piece[: whole * WORD.itemsize], WORD)
        words[self._positions[low:high] - first] = self._values[low:high]
        if len(piece) % WORD.itemsize and high < len(self._positions) and self._positions[high] == first + whole:
            piece[-1] = int(self._values[high]) & 0xFF

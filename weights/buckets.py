"""Tensors in flat uint8 buckets of bounded size, so that memory of one version serves for the next.

Every tensor starts at a multiple of 16 bytes. A tensor larger than a bucket is split over several; nothing else ever is.
"""

from dataclasses import dataclass

from claw_r1.weights.manifest import aligned

ALIGNMENT_BYTES = 16
BUCKET_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """`length` bytes of tensor number `tensor`, from `source` in the tensor to `target` in the bucket."""

    tensor: int
    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """`size` bytes, padding included, and the pieces that they hold."""

    size: int
    pieces: tuple[Piece, ...]


class Packing:
    """Places tensors into buckets one after the other, as they come. Raises ValueError for a limit that fits no aligned piece."""

    def __init__(self, bucket_bytes_max: int = BUCKET_BYTES_MAX) -> None:
        if bucket_bytes_max < ALIGNMENT_BYTES or bucket_bytes_max % ALIGNMENT_BYTES:
            raise ValueError(
                f"bucket_bytes_max must be a positive multiple of {ALIGNMENT_BYTES}, is {bucket_bytes_max}"
            )
        self._bytes_max = bucket_bytes_max
        self._tensors = 0
        self._pieces: list[list[Piece]] = []
        self._sizes: list[int] = []

    def place(self, nbytes: int) -> list[tuple[int, Piece]]:
        """Places the next tensor: (number of the bucket, piece), in the order of its bytes. An empty one is an empty
        piece."""
        placed = []
        for start in range(0, max(nbytes, 1), self._bytes_max):
            length = min(self._bytes_max, nbytes - start)
            if not self._pieces or self._sizes[-1] + length > self._bytes_max:
                self._pieces.append([])
                self._sizes.append(0)
            piece = Piece(self._tensors, start, self._sizes[-1], length)
            self._pieces[-1].append(piece)
            self._sizes[-1] += aligned(length, ALIGNMENT_BYTES)
            placed.append((len(self._pieces) - 1, piece))
        self._tensors += 1
        return placed

    def buckets(self) -> tuple[Bucket, ...]:
        """All of them so far."""
        return tuple(Bucket(size, tuple(pieces)) for size, pieces in zip(self._sizes, self._pieces, strict=True))

"""Tensors as flat uint8 buckets of bounded size: both sides compute the same plan from the same manifest.

Every tensor starts at a multiple of 16 bytes, so that a received bucket can be viewed as any dtype without a copy.
A tensor larger than a bucket is split over several; nothing else ever is.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weights.manifest import TensorShape

if TYPE_CHECKING:
    import torch

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
    """`size` bytes on the wire, padding included, and the pieces that they hold."""

    size: int
    pieces: tuple[Piece, ...]


def aligned(count: int) -> int:
    """`count` rounded up to the alignment."""
    return -(-count // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


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
        """Where the next tensor goes: (number of the bucket, piece), in the order of its bytes.

        An empty tensor is one empty piece: the receiver must yield it.
        """
        placed = []
        for start in range(0, max(nbytes, 1), self._bytes_max):
            length = min(self._bytes_max, nbytes - start)
            if not self._pieces or self._sizes[-1] + length > self._bytes_max:
                self._pieces.append([])
                self._sizes.append(0)
            piece = Piece(self._tensors, start, self._sizes[-1], length)
            self._pieces[-1].append(piece)
            self._sizes[-1] += aligned(length)
            placed.append((len(self._pieces) - 1, piece))
        self._tensors += 1
        return placed

    def buckets(self) -> tuple[Bucket, ...]:
        """All of them so far, in sending order."""
        return tuple(Bucket(size, tuple(pieces)) for size, pieces in zip(self._sizes, self._pieces, strict=True))


def plan(specs: Iterable[TensorShape], bucket_bytes_max: int = BUCKET_BYTES_MAX) -> tuple[Bucket, ...]:
    """Buckets in sending order. Pure; raises ValueError when a bucket could not hold one aligned piece."""
    packing = Packing(bucket_bytes_max)
    for spec in specs:
        packing.place(spec.nbytes)
    return packing.buckets()


def unpack(
    received: Iterable["torch.Tensor"],
    specs: Sequence[TensorShape],
    buckets: Sequence[Bucket],
) -> Iterator[tuple[str, "torch.Tensor"]]:
    """Tensors in manifest order, each as soon as its last piece is there.

    A tensor that lies in one bucket is a view of it, so a received bucket must not be reused.
    """
    partial: torch.Tensor | None = None
    for flat, bucket in zip(received, buckets, strict=True):
        for piece in bucket.pieces:
            spec = specs[piece.tensor]
            part = flat[piece.target : piece.target + piece.length]
            if piece.length == spec.nbytes:
                yield spec.name, _shaped(part, spec)
                continue
            partial = flat.new_empty(spec.nbytes) if partial is None else partial
            partial[piece.source : piece.source + piece.length].copy_(part)
            if piece.source + piece.length == spec.nbytes:
                yield spec.name, _shaped(partial, spec)
                partial = None


def _shaped(flat: "torch.Tensor", spec: TensorShape) -> "torch.Tensor":
    import torch

    dtype: torch.dtype = getattr(torch, spec.dtype)
    return flat.view(dtype).view(spec.shape)

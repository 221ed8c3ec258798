"""Tensors as flat uint8 buckets of bounded size: both sides compute the same plan from the same manifest.

Every tensor starts at a multiple of 16 bytes, so that a received bucket can be viewed as any dtype without a copy.
A tensor larger than a bucket is split over several; nothing else ever is.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weights.errors import ManifestMismatch
from weights.manifest import TensorShape, bytes_of, spec_of

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


def plan(specs: Sequence[TensorShape], bucket_bytes_max: int = BUCKET_BYTES_MAX) -> tuple[Bucket, ...]:
    """Buckets in sending order. Pure; raises ValueError when a bucket could not hold one aligned piece."""
    if bucket_bytes_max < ALIGNMENT_BYTES or bucket_bytes_max % ALIGNMENT_BYTES:
        raise ValueError(f"bucket_bytes_max must be a positive multiple of {ALIGNMENT_BYTES}, is {bucket_bytes_max}")
    buckets: list[Bucket] = []
    pieces: list[Piece] = []
    used = 0
    for piece in _cut(specs, bucket_bytes_max):
        if pieces and used + piece.length > bucket_bytes_max:
            buckets.append(Bucket(used, tuple(pieces)))
            pieces, used = [], 0
        pieces.append(Piece(piece.tensor, piece.source, used, piece.length))
        used += aligned(piece.length)
    if pieces:
        buckets.append(Bucket(used, tuple(pieces)))
    return tuple(buckets)


def _cut(specs: Sequence[TensorShape], bucket_bytes_max: int) -> Iterator[Piece]:
    """Each tensor as pieces of at most one bucket. An empty tensor is one empty piece: the receiver must yield it."""
    for index, spec in enumerate(specs):
        for start in range(0, max(spec.nbytes, 1), bucket_bytes_max):
            yield Piece(index, start, 0, min(bucket_bytes_max, spec.nbytes - start))


def pack(
    named_tensors: Iterable[tuple[str, "torch.Tensor"]],
    specs: Sequence[TensorShape],
    buckets: Sequence[Bucket],
    out: Sequence["torch.Tensor"],
) -> None:
    """Copy tensors into `out`, one flat uint8 tensor per bucket. Raises ManifestMismatch on any difference."""
    where = _pieces_by_tensor(buckets)
    count = 0
    for index, (name, tensor) in enumerate(named_tensors):
        if index >= len(specs) or spec_of(name, tensor) != specs[index]:
            raise ManifestMismatch(f"tensor {index} is {spec_of(name, tensor)}, not the manifest's")
        flat = bytes_of(tensor)
        for bucket, piece in where[index]:
            source = flat[piece.source : piece.source + piece.length]
            out[bucket][piece.target : piece.target + piece.length].copy_(source)
        count += 1
    if count != len(specs):
        raise ManifestMismatch(f"{count} tensors, {len(specs)} promised")


def _pieces_by_tensor(buckets: Sequence[Bucket]) -> dict[int, list[tuple[int, Piece]]]:
    where: dict[int, list[tuple[int, Piece]]] = {}
    for number, bucket in enumerate(buckets):
        for piece in bucket.pieces:
            where.setdefault(piece.tensor, []).append((number, piece))
    return where


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

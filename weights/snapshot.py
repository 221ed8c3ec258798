"""A version as one pass over its tensors leaves it: packed in host memory, hashed by a thread, named by its manifest.

Invariant: a snapshot never changes while anybody holds it, so manifest, transfer and export are of the same bytes.
Its memory is used again for a later snapshot once nobody holds it any more: whoever reads, holds the snapshot.
Whoever takes it only copies: GPUs that wait for the copy need not wait for a hash, which is slower. Whoever asks for the
manifest waits for it.
"""

import hashlib
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import torch

from claw_r1.weights.buckets import BUCKET_BYTES_MAX, Bucket, Packing, Piece
from claw_r1.weights.manifest import NamedTensors, TensorShape, WeightsManifest, bytes_of, spec_of


@dataclass(frozen=True, eq=False)
class WeightsSnapshot:
    """`buckets`: flat uint8 tensors, filled as `layout` says. `digest`: of the bytes of all `specs`, once they are hashed."""

    specs: tuple[TensorShape, ...]
    layout: tuple[Bucket, ...]
    buckets: tuple[torch.Tensor, ...]
    digest: "Future[str]"

    @cached_property
    def manifest(self) -> WeightsManifest:
        """The manifest that names the snapshot. Waits until every byte is hashed."""
        return WeightsManifest(self.specs, self.digest.result())

    @classmethod
    def of(cls, named_tensors: NamedTensors, bucket_bytes_max: int = BUCKET_BYTES_MAX) -> "WeightsSnapshot":
        """Copies the tensors into memory of its own."""
        return Snapshots(bucket_bytes_max).take(named_tensors)

    def tensors(self) -> Iterator[tuple[TensorShape, Sequence[memoryview]]]:
        """Every tensor in order, with its bytes in one or more parts. Views: hold the snapshot while you read them."""
        parts: list[list[memoryview]] = [[] for _ in self.specs]
        for flat, bucket in zip(self.buckets, self.layout, strict=True):
            for piece in bucket.pieces:
                parts[piece.tensor].append(_memory(flat, piece))
        yield from zip(self.specs, parts, strict=True)


class HostMemory:
    """Flat uint8 tensors of one size, used again and again: fresh pages cost more than the copy into them."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._spare: deque[torch.Tensor] = deque()  # filled from any thread: its methods are atomic

    def chunk(self) -> torch.Tensor:
        """Returns a chunk that nobody uses. Memory that is never touched costs nothing, so a chunk need not be
        filled."""
        try:
            return self._spare.pop()
        except IndexError:
            return torch.empty(self._chunk_bytes, dtype=torch.uint8)

    def lend(self, holder: object) -> list[torch.Tensor]:
        """An empty list for chunks; what stands in it returns when nobody holds the holder any more."""
        chunks: list[torch.Tensor] = []
        weakref.finalize(holder, self._spare.extend, chunks).atexit = False
        return chunks

    def trim(self) -> None:
        """Free what nobody uses now."""
        self._spare.clear()


class Snapshots:
    """Makes the snapshots of a run."""

    def __init__(self, bucket_bytes_max: int = BUCKET_BYTES_MAX) -> None:
        self._bucket_bytes_max = bucket_bytes_max
        self._memory = HostMemory(bucket_bytes_max)
        self._hasher = ThreadPoolExecutor(1, thread_name_prefix="hash")  # one: pieces are hashed in their order

    def take(self, named_tensors: NamedTensors) -> WeightsSnapshot:
        """One pass: each tensor is asked for once and copied once, each byte of the copy hashed once, behind it. The tensors may
        change afterwards."""
        packing = Packing(self._bucket_bytes_max)
        whole: list[torch.Tensor] = []
        specs: list[TensorShape] = []
        sha = hashlib.sha256()
        for name, tensor in named_tensors:
            specs.append(spec_of(name, tensor))
            flat = bytes_of(tensor)
            for number, piece in packing.place(specs[-1].nbytes):
                if number == len(whole):
                    whole.append(self._memory.chunk())
                target = whole[number][piece.target : piece.target + piece.length]
                target.copy_(flat[piece.source : piece.source + piece.length])
                self._hasher.submit(sha.update, target.numpy())
        layout = packing.buckets()
        filled = tuple(flat[: bucket.size] for flat, bucket in zip(whole, layout, strict=True))
        snapshot = WeightsSnapshot(tuple(specs), layout, filled, self._hasher.submit(sha.hexdigest))
        self._memory.lend(snapshot).extend(whole)
        self._memory.trim()  # three are enough: two staged, one being taken
        return snapshot


def _memory(flat: torch.Tensor, piece: Piece) -> memoryview:
    return memoryview(flat[piece.target : piece.target + piece.length].numpy())

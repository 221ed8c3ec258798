"""A version as one pass over its tensors leaves it: a flat file in host memory, hashed and sealed by a thread, named by its manifest.

Invariant: a sealed file never changes, so manifest, transfer, export and the workers of this host have the same bytes.
Whoever takes a snapshot only copies: GPUs that wait for the copy need not wait for a hash, nor for pages, which are made ready
while they compute. Whoever asks for the manifest, or for the bytes, waits for the digest.
"""

import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from claw_r1.weights.digests import BLAKE3, Digest
from claw_r1.weights.manifest import (
    ALIGNMENT_BYTES,
    NamedTensors,
    TensorShape,
    WeightsManifest,
    aligned,
    bytes_flat,
    bytes_of,
    offsets,
    spec_of,
)
from claw_r1.weights.sealed_file import SealedFile, link_of, unlink


@dataclass(frozen=True, eq=False)
class WeightsSnapshot:
    """`digest`: of the bytes of all `specs`, once they are hashed and `file` is sealed."""

    specs: tuple[TensorShape, ...]
    file: SealedFile
    digest: "Future[str]"
    directory: Path | None = None

    @cached_property
    def manifest(self) -> WeightsManifest:
        """The manifest that names the snapshot. Waits until every byte is hashed."""
        return WeightsManifest(self.specs, self.digest.result())

    @classmethod
    def of(cls, named_tensors: NamedTensors) -> "WeightsSnapshot":
        """Copies the tensors into memory of its own."""
        return Snapshots().take(named_tensors)

    def tensors(self) -> Iterator[tuple[TensorShape, memoryview]]:
        """Every tensor in order, with its bytes."""
        flat = self.flat()
        for spec, begin in offsets(self.specs):
            yield spec, flat[begin : begin + spec.nbytes]

    def show(self) -> None:
        """Let the workers of this host find it as soon as it is hashed, for as long as somebody holds it here."""
        if self.directory is not None and self.file.path is not None:
            self.digest.add_done_callback(partial(_linked, weakref.ref(self.file), self.directory))
            weakref.finalize(self, _unlinked, self.directory, self.digest, self.file.path)

    def flat(self) -> memoryview:
        """All bytes, as they lie in the file."""
        self.digest.result()  # it is finished by then
        return self.file.read()


class Snapshots:
    """Makes the snapshots of a run."""

    def __init__(self, directory: Path | None = None) -> None:
        """directory: of this host's copies, where its workers find a version without asking for it."""
        self.algorithm = BLAKE3
        self._directory = directory
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weights-digest")
        self._room: Future[SealedFile] | None = None
        self._bytes = 0

    def take(self, named_tensors: NamedTensors) -> WeightsSnapshot:
        """One pass: each tensor is asked for once and copied once; then it may change."""
        room, self._room = self._room, None
        file, end = SealedFile(self._bytes) if room is None else room.result(), 0
        specs: list[TensorShape] = []
        for name, tensor in named_tensors:
            specs.append(spec_of(name, tensor))
            file.room(end, specs[-1].nbytes).copy_(bytes_of(tensor))
            end += aligned(specs[-1].nbytes, ALIGNMENT_BYTES)
        self._bytes = end
        digest = self._thread.submit(self._sealed, file, tuple(specs))
        return WeightsSnapshot(tuple(specs), file, digest, self._directory)

    def prepare(self) -> None:
        """Have memory for the next version ready when it is taken. Returns at once."""
        if self._room is None:
            self._room = self._thread.submit(_prefaulted, self._bytes)

    def _sealed(self, file: SealedFile, specs: tuple[TensorShape, ...]) -> str:
        flat, hasher = file.finish(bytes_flat(specs)), Digest(self.algorithm)
        for spec, begin in offsets(specs):
            hasher.update(flat[begin : begin + spec.nbytes])
        digest = hasher.text()
        with suppress(OSError):  # who finds it without seals asks by HTTP
            file.seal(digest)
        return digest


def _prefaulted(nbytes: int) -> SealedFile:
    file = SealedFile(nbytes)
    file.prefault()
    return file


def _linked(held: weakref.ref[SealedFile], directory: Path, digest: "Future[str]") -> None:
    """held: not the file itself, for a future never forgets its callbacks, and whoever knows a digest would hold the bytes."""
    if (file := held()) is not None:
        with suppress(OSError):  # then workers ask for it by HTTP
            file.link(directory, digest.result())


def _unlinked(directory: Path, digest: "Future[str]", path: str) -> None:
    if digest.done() and digest.exception() is None:
        unlink(link_of(directory, digest.result()), path)

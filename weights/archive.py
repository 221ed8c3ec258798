"""A run's versions in a directory that others mirror: what changed since the version before, and the whole of every n-th one.

`DIGEST.whole` is a version's flat file; `DIGEST.patch` begins with the digest of the version that it patches, on a line of its own
(`weights/patch.py`). Invariant: a name is there when its file is whole; what a chain of them makes is believed by its digest, as bytes
from anywhere are. Behind the last whole version but one nothing is kept.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from claw_r1.weights.deadline import Deadline
from claw_r1.weights.digests import algorithm_of, short
from claw_r1.weights.errors import ManifestMismatch, TransferFailed
from claw_r1.weights.host_copies import TensorBytes
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.patch import patch_of, patched
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.sources import Base

WHOLE, PATCH, UNFINISHED = ".whole", ".patch", ".unfinished"
WHOLE_KEPT = 2
"""So that who is in the middle of the chain before the newest can end it."""
STEP_NS = 10**9
"""So much that a file system with coarse times keeps the order."""
POLL_S = 0.2
HEADER_BYTES_MAX = 100


class VersionArchive:
    """Writes the versions of one incarnation. Belongs to one thread."""

    def __init__(self, directory: Path, whole_every: int) -> None:
        self._directory, self._whole_every = directory, whole_every
        self._before: WeightsSnapshot | None = None
        """The version that was written last, which the next one patches."""
        self._patches = 0

    def add(self, snapshot: WeightsSnapshot) -> None:
        """Writes a version that is not there, as a patch where that is worth it and the chain is not too long.

        Raises OSError: the next one is then whole, as it is for whoever comes after another incarnation.
        """
        before, digest = self._before, snapshot.manifest.digest
        if before is not None and before.manifest.digest == digest:
            return  # a step was skipped
        self._before, patch = None, None
        if is_archived(self._directory, digest):
            return
        if before is not None and before.specs == snapshot.specs and self._patches + 1 < self._whole_every:
            patch = patch_of(before.flat(), snapshot.flat())
        self._directory.mkdir(parents=True, exist_ok=True)
        if before is None or patch is None:
            self._write(digest + WHOLE, snapshot.flat())
            self._patches = 0
            self._forget()
        else:
            self._write(digest + PATCH, f"{before.manifest.digest}\n".encode(), patch)
            self._patches += 1
        self._before = snapshot

    def _write(self, name: str, *parts: bytes | memoryview) -> None:
        unfinished = self._directory / (name + UNFINISHED)
        try:
            with unfinished.open("wb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            self._make_newest(unfinished)
            unfinished.rename(self._directory / name)
        finally:
            unfinished.unlink(missing_ok=True)

    def _make_newest(self, path: Path) -> None:
        """Dates a file after all others: the clock may have been set back, or be another host's, and `_forget` goes by these times."""
        newest = max(other.stat().st_mtime_ns for other in self._directory.iterdir())
        if path.stat().st_mtime_ns < newest:
            os.utime(path, ns=(newest + STEP_NS, newest + STEP_NS))

    def _forget(self) -> None:
        """Removes what came before the oldest whole version that is kept, and what a kill left."""
        written = {path: path.stat().st_mtime_ns for path in self._directory.iterdir()}
        whole = sorted(at for path, at in written.items() if path.suffix == WHOLE)
        for path, at in written.items():
            if path.suffix == UNFINISHED or at < whole[-WHOLE_KEPT:][0]:
                path.unlink(missing_ok=True)


def is_archived(directory: Path, digest: str) -> bool:
    """Returns whether a version is in an archive."""
    return any((directory / (digest + kind)).exists() for kind in (PATCH, WHOLE))


class FromArchive:
    """A version from an archive: from a copy that is here, or from the
    newest whole version before it, by all patches since."""

    name = "archive"

    def __init__(self, directory: Path, base: Base | None = None) -> None:
        self.base, self.is_patched = base, False
        self._directory = directory

    @contextmanager
    def __call__(self, manifest: WeightsManifest, deadline: Deadline) -> Iterator[TensorBytes]:
        """Waits for a version that is not there yet. Raises ManifestMismatch, TransferFailed or DeadlineExceeded."""
        if not self._directory.is_dir():
            raise ManifestMismatch(f"{self._directory} is no archive")
        while not is_archived(self._directory, manifest.digest):
            time.sleep(min(POLL_S, deadline.remaining_s("the version to come into the archive")))
        self.is_patched = False
        try:
            start, bodies = self._chain(manifest.digest, deadline)
            self.is_patched = self.base is not None and str(start) == self.base.path
            with patched(start, bodies, manifest) as version:
                yield version
        except OSError as error:
            raise TransferFailed(f"{self._directory}: {error}") from error

    def _chain(self, digest: str, deadline: Deadline) -> tuple[Path, list[bytes]]:
        """The file to begin with, and the patches from there, the oldest first."""
        bodies: list[bytes] = []
        seen = {digest}
        while True:
            deadline.remaining_s("a chain of patches")
            if self.base is not None and digest == self.base.digest:
                return Path(self.base.path), bodies[::-1]
            if (whole := self._directory / (digest + WHOLE)).exists():
                return whole, bodies[::-1]
            header, _, body = (self._directory / (digest + PATCH)).read_bytes().partition(b"\n")
            digest = header[:HEADER_BYTES_MAX].decode("ascii", "replace")
            algorithm_of(digest)  # it becomes a file's name
            if digest in seen:
                raise TransferFailed(f"{self._directory}: the patches go round in a circle at {short(digest)}")
            seen.add(digest)
            bodies.append(body)

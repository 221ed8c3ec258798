"""Host copies of the two newest versions, ready to be sent.

Two, because a worker asks for exactly the version that it saw published while the trainer may already have staged the
next one. A staging never changes while a sender reads it; memory of a dropped one is used again for the next.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from schemas.http import version_label
from weights import buckets
from weights.buckets import Bucket
from weights.errors import ManifestMismatch, TransferRefused
from weights.manifest import NamedTensors, WeightsManifest

VERSIONS_KEPT = 2


@dataclass(slots=True)
class Staging:
    """One version as packed buckets in host memory; `readers` counts the senders that read it now."""

    run_id: str
    version: int
    manifest: WeightsManifest
    memory: list[torch.Tensor]
    readers: int = 0


class Stagings:
    """The versions that can be offered. Safe to use from any thread."""

    def __init__(self, bucket_bytes_max: int) -> None:
        self._bucket_bytes_max = bucket_bytes_max
        self._kept: list[Staging] = []
        self._spare: list[torch.Tensor] = []
        self._lock = threading.Lock()

    def add(self, run_id: str, version: int, named_tensors: NamedTensors, manifest: WeightsManifest) -> None:
        """Copy the tensors. Raises ManifestMismatch, also for other bytes under a version that is staged already."""
        if self._is_repeated(run_id, version, manifest):
            return
        layout = buckets.plan(manifest.tensors, self._bucket_bytes_max)
        memory = self._memory_for(layout)
        buckets.pack(named_tensors, manifest.tensors, layout, memory)
        with self._lock:
            self._kept.append(Staging(run_id, version, manifest, memory))
            for dropped in self._kept[:-VERSIONS_KEPT]:
                self._spare = dropped.memory if dropped.readers == 0 else self._spare
            del self._kept[:-VERSIONS_KEPT]

    def _is_repeated(self, run_id: str, version: int, manifest: WeightsManifest) -> bool:
        with self._lock:
            same = [s for s in self._kept if (s.run_id, s.version) == (run_id, version)]
        if same and same[0].manifest != manifest:
            raise ManifestMismatch(
                f"{version_label(run_id, version)} is staged with other bytes; a version number is never reused"
            )
        return bool(same)

    def _memory_for(self, layout: Sequence[Bucket]) -> list[torch.Tensor]:
        with self._lock:
            spare, self._spare = self._spare, []
        if [tensor.numel() for tensor in spare] == [bucket.size for bucket in layout]:
            return spare
        return [torch.empty(bucket.size, dtype=torch.uint8) for bucket in layout]

    def borrow(self, run_id: str | None, version: int | None) -> Staging:
        """The version asked for, the newest where none is named; its memory is not used again until `give_back`.

        Raises TransferRefused.
        """
        with self._lock:
            for staging in reversed(self._kept):
                if run_id in (None, staging.run_id) and version in (None, staging.version):
                    staging.readers += 1
                    return staging
        raise TransferRefused(f"{run_id or '(any run)'}/{'(newest)' if version is None else version} is not staged")

    def give_back(self, staging: Staging) -> None:
        """Its reader is done."""
        with self._lock:
            staging.readers -= 1

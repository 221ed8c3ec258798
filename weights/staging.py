"""The versions that are ready to be sent: of each name the
newest, and until that is published the one before it.

A worker asks for exactly the version that it saw published, while the trainer may already have staged the next one.
Whoever sends a version holds its snapshot.
"""

import threading
from concurrent.futures import Future
from dataclasses import dataclass

from claw_r1.schemas.http import version_label
from claw_r1.weights.digests import short
from claw_r1.weights.errors import ManifestMismatch, NotStaged
from claw_r1.weights.snapshot import WeightsSnapshot

VERSIONS_KEPT = 2
PATCH_WAIT_S = 2.0
"""For a patch that is being made: behind a network that is worth a patch, the whole version takes longer."""


@dataclass(frozen=True, slots=True)
class Staging:
    """One version that workers can have."""

    run_id: str
    version: int
    snapshot: WeightsSnapshot
    base: "Future[str] | None" = None
    patch: "Future[bytes | None] | None" = None
    """From the version with the digest `base`, the one before, where somebody asks for patches."""

    def patch_from(self, base: str) -> bytes | None:
        """The patch for who has the version with this digest; None where there is none soon."""
        if self.patch is None or self.base is None or self.base.result() != base:
            return None
        try:
            return self.patch.result(PATCH_WAIT_S)
        except Exception:  # noqa: BLE001  # late, or it could not be made: the whole version does as well
            return None


class Stagings:
    """The versions that can be offered. Safe to use from any thread."""

    def __init__(self) -> None:
        self._kept: list[Staging] = []
        self._lock = threading.Lock()

    def add(self, staging: Staging) -> None:
        """Raises ManifestMismatch for other bytes under a version that is staged already."""
        with self._lock:
            same = [kept for kept in self._kept if (kept.run_id, kept.version) == (staging.run_id, staging.version)]
            if not same:
                own = [kept for kept in self._kept if kept.run_id == staging.run_id]
                others = [kept for kept in self._kept if kept.run_id != staging.run_id]
                self._kept = [*others, *[*own, staging][-VERSIONS_KEPT:]]
                staging.snapshot.show()
            elif same[0].snapshot.manifest != staging.snapshot.manifest:
                label = version_label(staging.run_id, staging.version)
                raise ManifestMismatch(f"{label} is staged with other bytes; a version number is never reused")

    def settle(self, run_id: str, version: int) -> None:
        """This version is published: nobody asks for an older one of its run any more."""
        with self._lock:
            self._kept = [kept for kept in self._kept if kept.run_id != run_id or kept.version >= version]

    def newest(self, run_id: str) -> Staging | None:
        """The version of the run that was staged last."""
        with self._lock:
            return next((kept for kept in reversed(self._kept) if kept.run_id == run_id), None)

    def get(self, run_id: str, version: int, digest: str) -> Staging:
        """Raises NotStaged, also for other bytes."""
        with self._lock:
            named = [kept for kept in self._kept if (kept.run_id, kept.version) == (run_id, version)]
        for kept in named:  # without the lock: a digest may still be on its way
            if kept.snapshot.manifest.digest == digest:
                return kept
        raise NotStaged(f"{version_label(run_id, version)} with digest {short(digest)} is not staged")

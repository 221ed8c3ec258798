"""A weights version: one pass over the tensors, staged first, exported where due, and only then an event.

Invariant: a version that was published can be had, either from this incarnation's transfer server or from the export that
its event names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from schemas.envelopes import envelope
from schemas.events import TensorSpec, WeightsPublished
from trainer.storage.directories import remove
from weights.manifest import WeightsManifest

if TYPE_CHECKING:
    from torch import Tensor

    from weights.snapshot import Snapshots, WeightsSnapshot


class WeightServer(Protocol):
    """Where workers get a version: `weights.transfer_server.TransferServer`, or a fake."""

    @property
    def url(self) -> str:
        """Where workers ask."""

    def stage(self, run_id: str, version: int, snapshot: "WeightsSnapshot") -> None:
        """From now on workers can get this version."""


class Weights(Protocol):
    """`trainer.learn.engine.TrainingEngine` as far as publication needs it."""

    def named_tensors(self) -> Iterator[tuple[str, "Tensor"]]:
        """Every parameter, always in the same order."""

    def export(self, snapshot: "WeightsSnapshot", target: Path) -> None:
        """A HF-format directory, whole or not at all."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """Makes `WeightsPublished` events for one incarnation of one run (`epoch`); keeps the newest exports."""

    weights: Weights
    transfer_server: WeightServer
    exports: Path
    run_id: str
    model_id: str
    epoch: str
    producer: str
    exports_kept: int
    snapshots: "Snapshots"

    def snapshot(self) -> "WeightsSnapshot":
        """The weights as they are now, held still. Reads every byte, once."""
        return self.snapshots.take(self.weights.named_tensors())

    def stage(self, version: int, snapshot: "WeightsSnapshot") -> None:
        """For workers that ask for this number."""
        self.transfer_server.stage(self.run_id, version, snapshot)

    def export(self, version: int, snapshot: "WeightsSnapshot") -> Path:
        """Write a snapshot; where it lies. The digest in the name keeps other bytes apart."""
        target = self._export_of(version, snapshot.manifest)
        self.weights.export(snapshot, target)
        others = (path for path in self.exports.glob("[0-9]*") if path != target)
        for old in sorted(others, key=lambda path: path.stat().st_mtime_ns, reverse=True)[self.exports_kept - 1 :]:
            remove(old)
        return target

    def exported(self, version: int, manifest: WeightsManifest) -> Path | None:
        """Where these weights were exported before, if they were."""
        target = self._export_of(version, manifest)
        return target if target.is_dir() else None

    def _export_of(self, version: int, manifest: WeightsManifest) -> Path:
        return self.exports / f"{version:08d}-{manifest.digest[:12]}"

    def event(
        self, version: int, manifest: WeightsManifest, export: Path | None, sequence: int | None
    ) -> WeightsPublished:
        """The announcement. Stage first."""
        return WeightsPublished(
            envelope=envelope(self.producer, run_id=self.run_id),
            model_id=self.model_id,
            run_id=self.run_id,
            version=version,
            digest=manifest.digest,
            bytes_total=manifest.bytes_total,
            manifest=tuple(TensorSpec(name=t.name, dtype=t.dtype, shape=t.shape) for t in manifest.tensors),
            offer_url=self.transfer_server.url,
            epoch=self.epoch,
            checkpoint_uri=None if export is None else export.resolve().as_uri(),
            sequence=sequence,
        )

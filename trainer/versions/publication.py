"""A weights version: one pass over the tensors, staged first, exported where due, and only then an event.

Invariant: a published version can be fetched, either from this incarnation's transfer server or from the export that
its event names.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import AdapterSpec, TensorSpec, WeightsPublished
from claw_r1.schemas.http import adapter_run
from claw_r1.trainer.config.lora import LoraSettings
from claw_r1.trainer.storage.directories import remove
from claw_r1.weights.digests import short
from claw_r1.weights.manifest import WeightsManifest

if TYPE_CHECKING:
    from torch import Tensor

    from claw_r1.trainer.learn.examples import Float32s
    from claw_r1.weights.snapshot import Snapshots, WeightsSnapshot


class WeightServer(Protocol):
    """The server that workers fetch a version from:
    `claw_r1.weights.transfer_server.TransferServer`, or a fake."""

    @property
    def url(self) -> str:
        """The address at which workers ask."""

    def stage(self, run_id: str, version: int, snapshot: "WeightsSnapshot") -> None:
        """From now on workers can get this version."""

    def settle(self, run_id: str, version: int) -> None:
        """The version is published: none requests an older one."""


class Weights(Protocol):
    """A learner as far as publication needs it."""

    def named_tensors(self) -> Iterator[tuple[str, "Tensor"]]:
        """Every parameter, always in the same order."""

    def logprobs(self, ids: Sequence[int]) -> "Float32s":
        """[n - 1]: of each id but the first, at temperature 1."""

    def adapter_tensors(self) -> dict[str, "Tensor"]:
        """Copies of the adapters that are merged in the weights; empty: there are none."""

    def export(self, snapshot: "WeightsSnapshot", target: Path, adapter: Mapping[str, "Tensor"]) -> None:
        """A HF-format directory, whole or not at all."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Weights that may become a version. `probe_logprobs`: of the publisher's probe, by exactly these weights.

    `adapter`: what is merged in them, where they have any, and its snapshot.
    """

    snapshot: "WeightsSnapshot"
    probe_logprobs: bytes
    adapter: Mapping[str, "Tensor"]
    adapter_snapshot: "WeightsSnapshot | None" = None

    @property
    def manifest(self) -> WeightsManifest:
        """The manifest of the snapshot."""
        return self.snapshot.manifest


def probe_ids(model_dir: Path, vocabulary: int, count: int) -> tuple[int, ...]:
    """`count` token ids by which workers check what they loaded, always the same ones; none that config.json names as special."""
    config = json.loads((model_dir / "config.json").read_text())
    named = {**(config.get("text_config") or {}), **config}
    special = [value for name, value in named.items() if name.endswith("_token_id") and value is not None]
    usual = np.setdiff1d(np.arange(vocabulary), np.hstack([[], *special]))
    return tuple(np.random.default_rng(0).choice(usual, count).tolist())


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
    adapter_snapshots: "Snapshots"
    lora: LoraSettings = field(default_factory=LoraSettings)
    staleness_max: int | None = None
    probe_ids: tuple[int, ...] = ()

    def candidate(self) -> Candidate:
        """The weights as they are now, held still. Reads every byte, once; every rank of the learner takes part."""
        snapshot = self.snapshots.take(self.weights.named_tensors())
        probe = self.weights.logprobs(self.probe_ids).astype("<f4").tobytes() if self.probe_ids else b""
        adapter = self.weights.adapter_tensors()
        beside = self.adapter_snapshots.take(adapter.items()) if adapter else None
        return Candidate(snapshot, probe, adapter, beside)

    def stage(self, version: int, candidate: Candidate) -> None:
        """For workers that ask for this number."""
        self.transfer_server.stage(self.run_id, version, candidate.snapshot)
        if candidate.adapter_snapshot is not None:
            self.transfer_server.stage(adapter_run(self.run_id), version, candidate.adapter_snapshot)

    def settle(self, version: int) -> None:
        """The version is published: the memory of the one before it serves the next one."""
        self.transfer_server.settle(self.run_id, version)
        if self.lora.rank:
            self.transfer_server.settle(adapter_run(self.run_id), version)
        self.snapshots.prepare()

    def export(self, version: int, candidate: Candidate) -> Path:
        """Write the weights; where they lie. The digest in the name keeps other bytes apart."""
        target = self._export_of(version, candidate.manifest)
        self.weights.export(candidate.snapshot, target, candidate.adapter)
        others = (path for path in self.exports.glob("[0-9]*") if path != target)
        for old in sorted(others, key=lambda path: path.stat().st_mtime_ns, reverse=True)[self.exports_kept - 1 :]:
            remove(old)
        return target

    def exported(self, version: int, manifest: WeightsManifest) -> Path | None:
        """Returns the folder where these weights were exported before, if they were."""
        target = self._export_of(version, manifest)
        return target if target.is_dir() else None

    def _export_of(self, version: int, manifest: WeightsManifest) -> Path:
        return self.exports / f"{version:08d}-{short(manifest.digest)}"

    def event(self, version: int, candidate: Candidate, export: Path | None, sequence: int | None) -> WeightsPublished:
        """The announcement. Stage first."""
        manifest = candidate.manifest
        return WeightsPublished(
            envelope=envelope(self.producer, run_id=self.run_id),
            model_id=self.model_id,
            run_id=self.run_id,
            version=version,
            digest=manifest.digest,
            bytes_total=manifest.bytes_total,
            manifest=_specs(manifest),
            offer_url=self.transfer_server.url,
            epoch=self.epoch,
            checkpoint_uri=None if export is None else export.resolve().as_uri(),
            sequence=sequence,
            staleness_max=self.staleness_max,
            probe_ids=np.array(self.probe_ids, "<i4").tobytes(),
            probe_logprobs=candidate.probe_logprobs,
            adapter=self._adapter(candidate.adapter_snapshot),
        )

    def _adapter(self, snapshot: "WeightsSnapshot | None") -> AdapterSpec | None:
        if snapshot is None:
            return None
        manifest, lora = snapshot.manifest, self.lora
        return AdapterSpec(digest=manifest.digest, manifest=_specs(manifest), rank=lora.rank, alpha=lora.alpha)


def _specs(manifest: WeightsManifest) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=t.name, dtype=t.dtype, shape=t.shape) for t in manifest.tensors)

"""The sequence of an update with an engine that fails where it is told to, and the choice of a source."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from claw_r1.rollout.errors import EngineLost, SourceFailed
from claw_r1.rollout.fetch import Fetched, fetch, manifest_of
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.rollout.sync import load
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import TensorSpec, WeightsPublished
from claw_r1.weights.archive import VersionArchive
from claw_r1.weights.host_copies import HostCopy
from claw_r1.weights.host_copies import tensors as tensors_of
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.transfer_server import TransferServer

TENSORS = {"t": torch.arange(4.0)}
MANIFEST = WeightsManifest.of(TENSORS.items())
UPDATE_INFO = {"manifest": MANIFEST.to_json(), "path": "/copy"}
UPDATE = ["pause", "start", "update", "finish run/7", "resume"]


def published(
    checkpoint_uri: str | None, offer_url: str | None = None, version: int = 7, manifest: WeightsManifest = MANIFEST
) -> WeightsPublished:
    return WeightsPublished(
        envelope=envelope("test"),
        model_id="m",
        run_id="run",
        version=version,
        digest=manifest.digest,
        bytes_total=manifest.bytes_total,
        manifest=tuple(TensorSpec(name=t.name, dtype=t.dtype, shape=t.shape) for t in manifest.tensors),
        checkpoint_uri=checkpoint_uri,
        offer_url=offer_url,
    )


def damaged(held: Fetched, folder: Path) -> Fetched:
    """A version whose bytes are others than it says."""
    other = folder / "other"
    other.write_bytes(bytes(held.manifest.bytes_flat))
    return replace(held, copy=HostCopy(os.open(other, os.O_RDONLY), other))


class Engine:
    """Notes each step; fails at the named one."""

    def __init__(self, failing: str | None = None) -> None:
        self.steps: list[str] = []
        self.updates: list[Mapping[str, object]] = []
        self._failing = failing

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name.split()[0] == self._failing:
            raise EngineLost(name)

    async def pause(self) -> None:
        self._step("pause")

    async def start(self) -> None:
        self._step("start")

    async def update(self, update_info: Mapping[str, object]) -> None:
        self.updates.append(update_info)
        self._step("update")

    async def finish(self, label: str) -> None:
        self._step(f"finish {label}")

    async def resume(self) -> None:
        self._step("resume")


async def test_an_update_labels_before_it_resumes() -> None:
    """The label changes while the engine is paused, so no token gets the wrong one; every phase is timed."""
    engine = Engine()
    times_ms = await load(engine, partial(engine.update, UPDATE_INFO), "run", 7)
    assert engine.steps == UPDATE
    assert engine.updates == [UPDATE_INFO]
    assert set(times_ms) == {"pause", "start", "load", "finish", "resume", "paused"}
    assert times_ms["paused"] >= sum(ms for name, ms in times_ms.items() if name != "paused") - 1


@pytest.mark.parametrize("step", ["pause", "start", "update", "finish", "resume"])
async def test_a_step_that_fails_gives_the_engine_up(step: str) -> None:
    """Whatever fails, the engine is never resumed: it may be of two versions."""
    engine = Engine(step)
    with pytest.raises(EngineLost):
        await load(engine, partial(engine.update, UPDATE_INFO), "run", 7)
    assert engine.steps[-1].split()[0] == step


async def test_the_next_source_is_asked_where_one_fails(tmp_path: Path) -> None:
    """A trainer that is gone costs nothing where there is an export; where nothing has the bytes, every reason is told."""
    settings = RolloutSettings(model=tmp_path, model_id="m", copies_dir=tmp_path / "copies")
    gone = "http://127.0.0.1:9/weights"
    save_file(TENSORS, tmp_path / "model.safetensors")
    fetched = await fetch(settings, published(str(tmp_path), gone))
    assert fetched.source == "checkpoint"
    assert fetched.manifest == manifest_of(published(None))
    fetched.copy.close()
    save_file({"t": torch.ones(4)}, tmp_path / "model.safetensors")
    with pytest.raises(SourceFailed, match=r"trainer: .*; checkpoint: digest"):
        await fetch(settings, published(str(tmp_path), gone))
    with pytest.raises(SourceFailed, match="neither a trainer nor a checkpoint"):
        await fetch(settings, published(None))


async def test_a_held_version_is_patched_and_a_damaged_one_costs_one_more_try(tmp_path: Path) -> None:
    """The worker names what it has; where the patch's result has another digest, the whole version is asked for, and that is told."""
    settings = RolloutSettings(model=tmp_path, model_id="m", copies_dir=tmp_path / "copies")
    server, ways = TransferServer(), []
    held: list[Fetched] = []
    tensors = {"t": torch.arange(4096, dtype=torch.int16)}
    for version in range(4):
        tensors["t"][version] += 1
        snapshot = WeightsSnapshot.of(tensors.items())
        server.stage("run", version, snapshot)
        event = published(None, server.url, version, snapshot.manifest)
        if version == 3:
            held[0].copy.close()
            held = [damaged(held[0], tmp_path)]
        fetched = await fetch(settings, event, held)
        ways.append((fetched.source, len(fetched.failed)))
        assert dict(tensors_of(fetched.copy.path, fetched.manifest))["t"].equal(tensors["t"])
        held = [fetched]
    again = await fetch(settings, event)
    assert ways == [("trainer", 0), ("trainer", 0), ("trainer, a patch", 0), ("trainer", 1)]
    assert again.source == "this host's memory"
    server.close()


async def test_who_cannot_reach_the_trainer_has_its_versions_from_an_archive(tmp_path: Path) -> None:
    """The next one by what changed since; where what is here is damaged, from the whole one, and that is told."""
    settings = RolloutSettings(
        model=tmp_path, model_id="m", copies_dir=tmp_path / "copies", archive_dir=tmp_path, offer_timeout_s=0.2
    )
    archive, ways = VersionArchive(tmp_path / "run", 9), []
    held: list[Fetched] = []
    tensors = {"t": torch.arange(4096, dtype=torch.int16)}
    for version in range(3):
        tensors["t"][version] += 1
        snapshot = WeightsSnapshot.of(tensors.items())
        archive.add(snapshot)
        if version == 2:
            held = [damaged(held[0], tmp_path)]
        fetched = await fetch(settings, published(None, "http://127.0.0.1:9/weights", version, snapshot.manifest), held)
        ways.append((fetched.source, len(fetched.failed)))
        assert dict(tensors_of(fetched.copy.path, fetched.manifest))["t"].equal(tensors["t"])
        held = [fetched]
    assert ways == [("archive", 1), ("archive, a patch", 1), ("archive", 2)]

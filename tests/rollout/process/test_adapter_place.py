"""A worker that takes versions as adapters, with an engine that is a script; tests/trainer/integration/test_lora_in_vllm.py has a real one."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from claw_r1.rollout.errors import ServerDied
from claw_r1.rollout.process.adapter_place import AdapterPlace
from claw_r1.rollout.process.server import VllmServer
from claw_r1.schemas.events import AdapterSpec
from claw_r1.weights.manifest import WeightsManifest
from tests.rollout.scripted import Trainer, scripted_worker, settings
from tests.rollout.scripted_vllm import ScriptedVllm
from tests.small_disk import run_on_small_disk

NAME = "base_model.model.layers.0.up.lora_A.weight"


def served(place: AdapterPlace) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    """What vLLM would read now."""
    config = json.loads((place.path / "adapter_config.json").read_text())
    return load_file(place.path / "adapter_model.safetensors"), config


async def test_an_adapter_is_put_in_place_while_the_engine_is_paused(tmp_path: Path) -> None:
    """No weights are loaded; at the end of each update, before the engine goes on, the adapter is that of the label."""
    engine, trainer, place, seen = ScriptedVllm(), Trainer(), AdapterPlace(), list[tuple[str, float, bool]]()
    place.clear()
    assert served(place)[0] == {}
    engine.on_finish = lambda: seen.append((engine.labels[-1], served(place)[0][NAME].mean().item(), engine.is_paused))
    trainer.publish(0, rank=4)
    async with scripted_worker(engine, trainer, tmp_path, lora_rank_max=8) as worker:
        worker.server.adapter = place
        for version in (1, 2):
            await worker.until(lambda report, before=version - 1: (report.state, report.version) == ("ready", before))
            trainer.publish(version, rank=4)
        await worker.until(lambda report: (report.state, report.version) == ("ready", 2))
    assert (seen[0], seen[-1], engine.updates) == (("run/0", 0.0, True), ("run/2", 2.0, True), 0)
    tensors, config = served(place)
    assert tensors[NAME].tolist() == [[2.0] * 3] * 4
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (4, 32, ["layers.0.up"])
    assert len(list(place.path.parent.iterdir())) == 2, "earlier ones are gone"
    place.clear()
    assert served(place)[0] == {}, "an engine that is started begins with none"


class OnADiskThatFills(AdapterPlace):
    """Raises what a full disk raises, where it is told to, once."""

    def __init__(self, fails: str) -> None:
        super().__init__()
        self.fails = fails

    def _full(self, step: str) -> None:
        if self.fails == step:
            self.fails = ""
            raise OSError(errno.ENOSPC, "No space left on device")

    def clear(self) -> None:
        self._full("clear")
        super().clear()

    def prepare(self, copy: str, manifest: WeightsManifest, spec: AdapterSpec) -> Path:
        self._full("prepare")
        return super().prepare(copy, manifest, spec)

    def serve(self, draft: Path) -> None:
        self._full("serve")
        super().serve(draft)


@pytest.mark.parametrize(("fails", "starts"), [("prepare", 1), ("serve", 2)])
async def test_a_disk_that_is_full_for_a_moment_costs_no_worker(tmp_path: Path, fails: str, starts: int) -> None:
    """The version before goes on, and the report says why; in the pause of an update the engine is lost, as by any other error
    there. Either way the version is loaded at the next try."""
    engine, trainer, place = ScriptedVllm(), Trainer(), OnADiskThatFills("")
    place.clear()
    trainer.publish(0, rank=4)
    async with scripted_worker(engine, trainer, tmp_path, lora_rank_max=8) as worker:
        worker.server.adapter = place
        await worker.until(lambda report: (report.state, report.version) == ("ready", 0))
        place.fails = fails
        trainer.publish(1, rank=4)
        report = await worker.until(lambda report: report.detail)
        assert "No space left" in (report.detail or "")
        assert (report.state, report.version) == (("ready", 0) if fails == "prepare" else ("starting", None))
        report = await worker.until(lambda report: (report.state, report.version) == ("ready", 1))
        assert (report.detail, worker.server.starts) == (None, starts)
    assert served(place)[0][NAME].mean().item() == 1.0


async def test_a_server_whose_adapter_has_no_room_counts_as_a_server_that_died(tmp_path: Path) -> None:
    """So it is started again as often as any other, and then the worker ends with the reason in one line."""
    server = VllmServer(settings(model=tmp_path, lora_rank_max=8))
    server.adapter = OnADiskThatFills("clear")
    with pytest.raises(ServerDied, match="No space left"):
        await server.start()


FULL = """
import os, sys, tempfile
from claw_r1.rollout.process.adapter_place import AdapterPlace
from claw_r1.schemas.events import AdapterSpec
from claw_r1.weights.manifest import TensorShape, WeightsManifest
tempfile.tempdir = sys.argv[1]
os.write(file := os.memfd_create("copy"), bytes(400_000))
copy = f"/proc/self/fd/{file}"
manifest = WeightsManifest((TensorShape("t", "uint8", (400_000,)),), "b3:" + "0" * 64)
place = AdapterPlace()
names = lambda: sorted(path.suffix for path in place.path.parent.iterdir())
spec = AdapterSpec(digest="", manifest=(), rank=1, alpha=1)
place.clear()
ready = place.prepare(copy, manifest, spec)
before, full = names(), 0
while not full:
    try:
        place.prepare(copy, manifest, spec)
        before = names()
    except OSError as error:
        full = error.errno
print(full, names() == before)
place.serve(ready)
print((place.path / "adapter_model.safetensors").stat().st_size > 400_000)
place.clear()
print(len(names()))
"""


def test_a_full_disk_gets_no_part_of_an_adapter_and_one_that_is_written_is_put_in_place(tmp_path: Path) -> None:
    """What was begun is gone, and the change of the name in the pause needs no room; an engine that is started finds what it
    serves and nothing that others left."""
    assert run_on_small_disk(FULL, tmp_path, "1M") == [f"{errno.ENOSPC} True", "True", "2"]


KILLED = """
import os, signal
from claw_r1.rollout.process.adapter_place import AdapterPlace
place = AdapterPlace()
place.clear()
os.kill(os.getpid(), signal.SIGKILL)
"""
NEXT = """
import tempfile
from pathlib import Path
from claw_r1.rollout.process.adapter_place import AdapterPlace
places = [AdapterPlace(), AdapterPlace()]
folders = set(Path(tempfile.gettempdir()).glob("claw-*adapter-*"))
print(folders == {place.path.parent for place in places})
"""


def test_what_a_worker_leaves_that_is_killed_goes_when_the_next_begins(tmp_path: Path) -> None:
    """Its adapters would fill the disk, one kill after the other; the folder of one that lives stays."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", KILLED], env=environment, check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    run = subprocess.run([sys.executable, "-c", NEXT], env=environment, check=True, capture_output=True, text=True)
    assert run.stdout == "True\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("rank", "says"), [(0, "no adapter"), (16, "rank 16, lora_rank_max is 8")])
async def test_what_is_no_adapter_that_fits_is_not_loaded(tmp_path: Path, rank: int, says: str) -> None:
    """The version before it goes on, and the report says why."""
    engine, trainer = ScriptedVllm(), Trainer()
    trainer.publish(0, rank=8)
    async with scripted_worker(engine, trainer, tmp_path, lora_rank_max=8) as worker:
        worker.server.adapter = AdapterPlace()
        await worker.until(lambda report: (report.state, report.version) == ("ready", 0))
        trainer.publish(1, rank=rank)
        report = await worker.until(lambda report: report.detail)
        assert (report.state, report.version) == ("ready", 0)
        assert says in (report.detail or "")
    assert (engine.labels[-1], engine.updates) == ("run/0", 0)


async def test_who_takes_no_adapters_gets_whole_versions(tmp_path: Path) -> None:
    """One trainer serves both kinds of workers."""
    engine, trainer = ScriptedVllm(), Trainer()
    trainer.publish(0, rank=4)
    async with scripted_worker(engine, trainer, tmp_path) as worker:
        await worker.until(lambda report: (report.state, report.version) == ("ready", 0))
    assert engine.updates == 1

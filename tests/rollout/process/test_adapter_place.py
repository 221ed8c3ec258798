"""A worker that takes versions as adapters, with an engine that is a script; tests/trainer/integration/test_lora_in_vllm.py has a real one."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from claw_r1.rollout.process.adapter_place import AdapterPlace
from tests.rollout.scripted import Trainer, scripted_worker
from tests.rollout.scripted_vllm import ScriptedVllm

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

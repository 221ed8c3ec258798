"""A real worker that follows versions of a model made in code; needs all of this project, as `bootstrap.py setup --gpu` installs it."""

from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from transformers import AutoModelForCausalLM

from bench.medians import medians
from bench.weights.fleet import RUN, announced, worker
from claw_r1.schemas.events import WeightsPublished
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.transfer_server import TransferServer

PROBE = [5 + 7 * number % 90 for number in range(48)]


class ChangingModel:
    """Offers a model as another version of itself, with the probe that a worker holds it to."""

    def __init__(self, model_dir: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16).eval()
        self._server = TransferServer()

    @torch.no_grad()
    def stage(self, version: int) -> WeightsPublished:
        """The event that announces it."""
        for parameter in self._model.parameters():
            parameter.mul_(1.01 if version % 2 else 1 / 1.01)
        snapshot = WeightsSnapshot.of((name, each.detach()) for name, each in self._model.named_parameters())
        self._server.stage(RUN, version, snapshot)
        ids = torch.tensor(PROBE)
        logprobs = self._model(ids[None]).logits[0, :-1].float().log_softmax(-1).gather(-1, ids[1:, None])
        probe = {"probe_ids": ids.int().numpy().tobytes(), "probe_logprobs": logprobs.numpy().tobytes()}
        return replace(announced(version, self._server.url, snapshot.manifest), **probe)

    def close(self) -> None:
        self._server.close()


async def synced(model_dir: Path, count: int, settings: dict[str, Any]) -> dict[str, float]:
    """Over `count` versions in bf16: medians in ms of the pause, the load in it and the fetch before it, and the largest gap of the probe."""
    changing = ChangingModel(model_dir)
    try:
        async with worker(model_dir, dtype="bfloat16", kv_cache_bytes=None, **settings) as serving:
            syncs = [await serving.push(changing) for _ in range(count)]
    finally:
        changing.close()
    middle = medians(syncs)
    return {
        "pause_ms": middle["paused"],
        "load_ms": middle["load"],
        "fetch_ms": middle["fetch"],
        "probe_gap": max(sync["probe_gap"] for sync in syncs),
    }

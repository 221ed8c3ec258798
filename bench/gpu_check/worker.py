"""A real worker that follows versions of a model made in code; needs all of this project, as `bootstrap.py setup --gpu` installs it."""

import asyncio
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from claw_r1.rollout.app import serve
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.rollout.supervisor import Stop
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import TensorSpec, WeightsPublished, WorkerReported
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.transfer_server import TransferServer

PROBE = [5 + 7 * number % 90 for number in range(48)]
NAME = "gpu-check"
SERVED_WITHIN_S = 300.0


class Published:
    """A feed of versions, and a sink of reports."""

    def __init__(self) -> None:
        self.versions: asyncio.Queue[WeightsPublished] = asyncio.Queue()
        self.reports: asyncio.Queue[WorkerReported] = asyncio.Queue()

    async def run(self, on_event: Callable[[WeightsPublished], None], caught_up: asyncio.Event) -> None:
        """The feed's."""
        caught_up.set()
        while True:
            on_event(await self.versions.get())

    async def report(self, event: WorkerReported) -> None:
        """The sink's."""
        self.reports.put_nowait(event)

    async def ready(self, version: int) -> WorkerReported:
        """The first report that says so."""
        while True:
            report = await self.reports.get()
            if (report.state, report.version) == ("ready", version):
                return report


async def synced(model_dir: Path, count: int, settings: dict[str, Any]) -> dict[str, float]:
    """Over `count` versions in bf16: medians in ms of the pause, the load in it and the fetch before it, and the largest gap of the probe."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16).eval()
    published, server, stop = Published(), TransferServer(), Stop()
    own = RolloutSettings(model=model_dir, model_id=NAME, dtype="bfloat16", log_file=model_dir / "vllm.log", **settings)
    worker = asyncio.create_task(serve(own, published, published, stop))
    try:
        syncs = []
        for version in range(count):
            published.versions.put_nowait(_changed(model, version, server))
            ready = asyncio.ensure_future(published.ready(version))
            await asyncio.wait({worker, ready}, return_when=asyncio.FIRST_COMPLETED, timeout=SERVED_WITHIN_S)
            if not ready.done():
                raise RuntimeError(
                    f"version {version} is not served: {worker.exception() if worker.done() else 'too slow'}"
                )
            syncs.append(ready.result().sync_ms)
    finally:
        stop.now.set()
        await asyncio.gather(worker, return_exceptions=True)
        server.close()
    return {
        "pause_ms": statistics.median(sync["paused"] for sync in syncs),
        "load_ms": statistics.median(sync["load"] for sync in syncs),
        "fetch_ms": statistics.median(sync["fetch"] for sync in syncs),
        "probe_gap": max(sync["probe_gap"] for sync in syncs),
    }


@torch.no_grad()
def _changed(model: torch.nn.Module, version: int, server: TransferServer) -> WeightsPublished:
    """The model as another version of itself, staged."""
    for parameter in model.parameters():
        parameter.mul_(1.01 if version % 2 else 1 / 1.01)
    snapshot = WeightsSnapshot.of((name, parameter.detach()) for name, parameter in model.named_parameters())
    server.stage(NAME, version, snapshot)
    ids = torch.tensor(PROBE)
    logprobs = model(ids[None]).logits[0, :-1].float().log_softmax(-1).gather(-1, ids[1:, None])
    return WeightsPublished(
        envelope=envelope(NAME, run_id=NAME),
        model_id=NAME,
        run_id=NAME,
        version=version,
        digest=snapshot.manifest.digest,
        bytes_total=snapshot.manifest.bytes_total,
        manifest=tuple(TensorSpec(name=t.name, dtype=t.dtype, shape=t.shape) for t in snapshot.manifest.tensors),
        offer_url=server.url,
        probe_ids=ids.int().numpy().tobytes(),
        probe_logprobs=logprobs.numpy().tobytes(),
    )

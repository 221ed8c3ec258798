"""A worker whose engine is a script: real supervisor, real HTTP, real transfer; only vLLM is played."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import torch
from aiohttp import web

from claw_r1.rollout.process.activity import Activity
from claw_r1.rollout.process.adapter_place import AdapterPlace
from claw_r1.rollout.process.server import VllmServer
from claw_r1.rollout.reporter import ReportSink
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.rollout.supervisor import Stop, Supervisor, WeightsFeed
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import AdapterSpec, TensorSpec, WeightsPublished, WorkerReported
from claw_r1.schemas.http import adapter_run
from claw_r1.weights.checkpoint import ADAPTER_PREFIX
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.snapshot import Snapshots, WeightsSnapshot
from claw_r1.weights.transfer_server import Sent, TransferServer
from tests.patience import PATIENCE_S
from tests.rollout.scripted_vllm import RIGHT_SCORE, ScriptedVllm

PROBE = (5, 6, 7)


class PlayedServer:
    """VllmServer's face without a process."""

    secret = "s"  # of a script
    adapter: AdapterPlace | None = None

    def __init__(self, url: str, engine: ScriptedVllm) -> None:
        self.url = self.local_url = url
        self.starts = 0
        self.looks = 0
        """How often it was asked what its engine has done."""
        self.moves = True
        self._engine = engine

    async def start(self) -> None:
        self.starts += 1
        self._engine.hangs, self._engine.score = False, RIGHT_SCORE

    def activity(self) -> Activity:
        self.looks += 1
        return Activity(cpu_s=float(self.looks) if self.moves else 0.0, log_bytes=0)

    async def wait_exit(self) -> int:
        return await asyncio.Event().wait()

    async def stop(self, *, politely: bool = True) -> None: ...


class Trainer:
    """Publishes versions of one small tensor into the worker's feed."""

    def __init__(self, on_sent: Callable[[Sent], None] = lambda _: None, directory: Path | None = None) -> None:
        """directory: of the copies of a worker on the same host, which finds versions there."""
        self.transfer = TransferServer(on_sent=on_sent)
        self._snapshots = Snapshots(directory)
        self._queue: asyncio.Queue[WeightsPublished] = asyncio.Queue()

    def publish(
        self, version: int, *, offer_url: str | None = None, staleness_max: int | None = None, rank: int = 0
    ) -> WeightsPublished:
        """rank: of an adapter that may be had in the place of the version; 0: there is none."""
        tensors = [("t", torch.full((4,), float(version)))]
        manifest = WeightsManifest.of(tensors)
        self.transfer.stage("run", version, self._snapshots.take(tensors))
        event = WeightsPublished(
            envelope=envelope("trainer/test", run_id="run"),
            model_id="m",
            run_id="run",
            version=version,
            digest=manifest.digest,
            bytes_total=manifest.bytes_total,
            manifest=tuple(TensorSpec(name=t.name, dtype=t.dtype, shape=t.shape) for t in manifest.tensors),
            offer_url=offer_url or self.transfer.url,
            staleness_max=staleness_max,
            probe_ids=struct.pack("<3i", *PROBE),
            probe_logprobs=struct.pack("<2f", RIGHT_SCORE, RIGHT_SCORE),
            adapter=self._adapter(version, rank) if rank else None,
        )
        self._queue.put_nowait(event)
        return event

    def _adapter(self, version: int, rank: int) -> AdapterSpec:
        matrix = (f"{ADAPTER_PREFIX}layers.0.up.lora_A.weight", torch.full((rank, 3), float(version)))
        snapshot = WeightsSnapshot.of([matrix])
        self.transfer.stage(adapter_run("run"), version, snapshot)
        specs = tuple(TensorSpec(name=t.name, dtype=t.dtype, shape=t.shape) for t in snapshot.specs)
        return AdapterSpec(digest=snapshot.manifest.digest, manifest=specs, rank=rank, alpha=32)

    async def run(self, on_event: Callable[[WeightsPublished], None], caught_up: asyncio.Event) -> None:
        while not self._queue.empty():
            on_event(self._queue.get_nowait())
        caught_up.set()
        while True:
            on_event(await self._queue.get())


class ScriptedWorker:
    """The supervisor and all that it reported."""

    def __init__(self, supervisor: Supervisor, server: PlayedServer, reports: list[WorkerReported]) -> None:
        self.supervisor = supervisor
        self.server = server
        self.reports = reports
        self.stop = Stop()
        self.task = asyncio.create_task(supervisor.run(self.stop))
        self._at = 0

    async def until(self, condition: Callable[[WorkerReported], object], seconds: float = PATIENCE_S) -> WorkerReported:
        """The first report for which the condition holds, from the one on that the test waited for before."""
        ends_at = time.monotonic() + seconds
        while True:
            for at in range(self._at, len(self.reports)):
                if condition(self.reports[at]):
                    self._at = at
                    return self.reports[at]
            assert not self.task.done(), self.task.exception()
            assert time.monotonic() < ends_at, f"not within {seconds} s; the last reports: {self.reports[-3:]}"
            await asyncio.sleep(0.005)


@asynccontextmanager
async def scripted_worker(
    engine: ScriptedVllm,
    trainer: Trainer,
    directory: Path,
    *,
    feed: WeightsFeed | None = None,
    sink: ReportSink | None = None,
    **settings: Any,
) -> AsyncIterator[ScriptedWorker]:
    """Runs until the block ends. feed: in place of the trainer's own; sink: gets the reports, too."""
    reports: list[WorkerReported] = []

    class Sink:
        async def report(self, event: WorkerReported) -> None:
            reports.append(event)
            if sink is not None:
                await sink.report(event)

    runner = web.AppRunner(engine.app(), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = PlayedServer(f"http://127.0.0.1:{runner.addresses[0][1]}", engine)
    fast = {"health_interval_s": 0.05, "report_interval_s": 0.1, "retry_interval_s": 0.1}
    chosen = RolloutSettings(
        model=directory, model_id="m", worker_id="w", copies_dir=directory / "copies", **{**fast, **settings}
    )
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        supervisor = Supervisor(chosen, http, cast("VllmServer", server), feed or trainer, Sink())
        worker = ScriptedWorker(supervisor, server, reports)
        try:
            yield worker
        finally:
            worker.task.cancel()
            await asyncio.gather(worker.task, return_exceptions=True)
            trainer.transfer.close()
            await runner.cleanup()


def settings(**fields: object) -> RolloutSettings:
    return RolloutSettings(**{"model": Path("m"), "model_id": "m", "worker_id": "w", **fields})  # type: ignore[arg-type]  # fields by name, of any type

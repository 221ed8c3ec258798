"""A worker whose engine is a script: real supervisor, real HTTP, real transfer; only vLLM is played."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
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
from claw_r1.weights.snapshot import WeightsSnapshot
from claw_r1.weights.transfer_server import Sent, TransferServer
from tests.patience import PATIENCE_S

PROBE = (5, 6, 7)
RIGHT_SCORE = -1.0
INFO = {"capabilities": ["tokens_json"], "kv_usage": 0.25, "seconds": {"idle": 1.0}}


class ScriptedEngine:
    """vLLM's control routes. While it loads, its engine answers nothing: `/claw/info` waits, as the real one's does."""

    def __init__(self, load_s: float = 0.0) -> None:
        self.load_s = load_s
        self.load: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(self.load_s)
        """Ends when a load does; a test that waits for more than time puts its own here."""
        self.labels: list[str] = []
        self.updates = 0
        """How often weights were loaded."""
        self.on_finish: Callable[[], object] = lambda: None
        """Called at the end of each update, while the engine is paused."""
        self.unloadable: set[str] = set()
        """Digests of versions with which the engine ends."""
        self.score = RIGHT_SCORE
        """The log-probability that it gives each token of a prompt."""
        self.in_flight = 0
        self.looks = 0
        """How often the supervisor asked how the engine is."""
        self.given_up = 0
        """How often it did not wait for the answer."""
        self.is_paused = False
        self.hangs = False
        self.is_healthy = True
        self.wishes: list[str] = []
        self._busy = asyncio.Lock()

    def app(self) -> web.Application:
        app = web.Application()
        for path in ("/pause", "/start_weight_update", "/resume", "/update_weight_version"):
            app.router.add_post(path, self._step)
        app.router.add_post("/update_weights", self._update)
        app.router.add_post("/finish_weight_update", self._finish)
        app.router.add_get("/claw/info", self._info)
        app.router.add_post("/v1/completions", self._score)
        app.router.add_get("/health", self._health)
        return app

    async def _step(self, request: web.Request) -> web.Response:
        self.is_paused = {"/pause": True, "/resume": False}.get(request.path, self.is_paused)
        return web.json_response({})

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({}, status=200 if self.is_healthy else 503)

    async def _update(self, request: web.Request) -> web.Response:
        digest = (await request.json())["update_info"]["manifest"]["digest"]
        self.updates += 1
        async with self._busy:
            await self.load()
        return web.json_response({}, status=500 if digest in self.unloadable else 200)

    async def _finish(self, request: web.Request) -> web.Response:
        self.labels.append((await request.json())["weight_version"])
        self.on_finish()
        return web.json_response({})

    async def _score(self, request: web.Request) -> web.Response:
        _, *ids = (await request.json())["prompt"]
        scores = [{str(token): {"logprob": self.score}} for token in ids]
        return web.json_response({"choices": [{"prompt_logprobs": [None, *scores]}]})

    async def _info(self, request: web.Request) -> web.Response:
        while self.hangs or self._busy.locked():
            await asyncio.sleep(0.01)
            if request.transport is None or request.transport.is_closing():
                self.given_up += 1
                return web.Response()
        async with self._busy:
            self.looks += 1
            wishes, self.wishes = self.wishes, []
            return web.json_response({**INFO, "in_flight": self.in_flight, "wishes": wishes})


class PlayedServer:
    """VllmServer's face without a process."""

    secret = "s"  # of a script
    adapter: AdapterPlace | None = None

    def __init__(self, url: str, engine: ScriptedEngine) -> None:
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

    def __init__(self, on_sent: Callable[[Sent], None] = lambda _: None) -> None:
        self.transfer = TransferServer(on_sent=on_sent)
        self._queue: asyncio.Queue[WeightsPublished] = asyncio.Queue()

    def publish(
        self, version: int, *, offer_url: str | None = None, staleness_max: int | None = None, rank: int = 0
    ) -> WeightsPublished:
        """rank: of an adapter that may be had in the place of the version; 0: there is none."""
        tensors = [("t", torch.full((4,), float(version)))]
        manifest = WeightsManifest.of(tensors)
        self.transfer.stage("run", version, WeightsSnapshot.of(tensors))
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
    engine: ScriptedEngine,
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

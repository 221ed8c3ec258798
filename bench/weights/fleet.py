"""The common parts of `bench.weights`: a trainer process, a real worker in this process, and its clients."""

import asyncio
import multiprocessing
import random
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import aiohttp
import torch
from msgspec.structs import replace

from bench.models import Shape, make
from claw_r1.rollout.process.server import VllmServer
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.rollout.supervisor import Stop, Supervisor
from claw_r1.runtime.processes import child
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import AdapterSpec, TensorSpec, WeightsPublished, WorkerReported
from claw_r1.schemas.http import CONTROL_HEADER, TOKENS_HEADER, adapter_run
from claw_r1.weights.carry.carrier_handle import CARRIER
from claw_r1.weights.carry.carrying import Carrying
from claw_r1.weights.checkpoint import ADAPTER_PREFIX
from claw_r1.weights.host_copies import HostCopies
from claw_r1.weights.manifest import WeightsManifest
from claw_r1.weights.snapshot import Snapshots, WeightsSnapshot
from claw_r1.weights.transfer_server import TransferServer

RUN, MODEL = "bench", "bench"
RANK = 8
READY_S = 300.0
SYNC_S = 120.0
SHM = Path("/dev/shm")  # noqa: S108  # where the engine's own reload reads from


@contextmanager
def models() -> Iterator[dict[str, Path]]:
    """HF directories in memory, by name: `demo`, the demo's own; `57m`, of random weights."""
    from transformers import AutoTokenizer  # seconds, which receivers need not spend

    from bench.verbs import model_of

    with TemporaryDirectory(dir=SHM, prefix="bench-weights-") as folder:
        demo, large = model_of(0), Path(folder) / "57m"
        tokenizer = AutoTokenizer.from_pretrained(demo)
        make(large, Shape(vocabulary=len(tokenizer), layers=18, tied=False))  # 57 M parameters; in float32, 228 MB
        tokenizer.save_pretrained(large)
        small = Path(folder) / "demo"
        shutil.copytree(demo, small)
        yield {"demo": small, "57m": large}


class Offers(Protocol):
    """A maker of versions."""

    def stage(self, version: int) -> WeightsPublished:
        """The event that announces it."""


class Trainer:
    """A process that offers two sets of weights in turn: what it costs to make a version is not measured here."""

    def __init__(self, model: Path, copies: Path | None = None) -> None:
        """copies: where workers of this host find its versions; None: they ask by HTTP, as those of other hosts do."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_offer, args=(str(model), copies, theirs), daemon=True)
        self._process.start()

    def stage(self, version: int) -> WeightsPublished:
        """The event that announces it."""
        self._pipe.send(version)
        return announced(version, *self._pipe.recv())

    def close(self) -> None:
        """Idempotent."""
        self._process.kill()
        self._process.join()

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AdapterTrainer:
    """Offers each version as its adapter of rank 8, of every linear layer of the blocks."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoModelForCausalLM

        module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self._whole = WeightsManifest.of((name, p.detach()) for name, p in module.named_parameters())
        named = ((name, each) for name, each in module.named_modules() if isinstance(each, torch.nn.Linear))
        self._layers = {name: each.weight.shape for name, each in named if ".layers." in name}
        self._server = TransferServer()

    def stage(self, version: int) -> WeightsPublished:
        """The event that announces it."""
        snapshot = WeightsSnapshot.of(self._matrices(version * 1e-4))
        self._server.stage(adapter_run(RUN), version, snapshot)
        event, manifest = announced(version, self._server.url, self._whole), snapshot.manifest
        spec = AdapterSpec(digest=manifest.digest, manifest=_specs(manifest), rank=RANK, alpha=32)
        return replace(event, adapter=spec)

    def _matrices(self, value: float) -> Iterator[tuple[str, torch.Tensor]]:
        for name, (out, width) in self._layers.items():
            yield f"{ADAPTER_PREFIX}{name}.lora_A.weight", torch.full((RANK, width), value)
            yield f"{ADAPTER_PREFIX}{name}.lora_B.weight", torch.full((out, RANK), value)


def announced(version: int, url: str, manifest: WeightsManifest) -> WeightsPublished:
    """The event of a version that is offered there."""
    return WeightsPublished(
        envelope=envelope("bench", run_id=RUN),
        model_id=MODEL,
        run_id=RUN,
        version=version,
        digest=manifest.digest,
        bytes_total=manifest.bytes_total,
        manifest=_specs(manifest),
        offer_url=url,
    )


def _specs(manifest: WeightsManifest) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name=t.name, dtype=t.dtype, shape=t.shape) for t in manifest.tensors)


def _offer(model: str, copies: Path | None, pipe: "Connection[Any, Any]") -> None:
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    carrying = Carrying(("gloo",), partial(child.start_spoken_to, CARRIER))  # no process until somebody asks
    server, snapshots = TransferServer(carrying=carrying), list[WeightsSnapshot]()
    making = Snapshots(copies and HostCopies(copies).directory)
    for _ in range(2):
        with torch.no_grad():
            next(module.parameters()).mul_(1.001)
        snapshots.append(making.take((name, p.detach()) for name, p in module.named_parameters()))
    while True:
        version = pipe.recv()
        server.stage(RUN, version, snapshots[version % 2])
        manifest: WeightsManifest = snapshots[version % 2].manifest
        pipe.send((server.url, manifest))


class Worker:
    """A supervisor in this process, with its vLLM below it. It is both feed and sink of its supervisor."""

    def __init__(self, settings: RolloutSettings, http: aiohttp.ClientSession) -> None:
        self.http = http
        self.server = VllmServer(settings)
        self.last: WorkerReported | None = None
        self._events: asyncio.Queue[WeightsPublished] = asyncio.Queue()
        self._reported = asyncio.Condition()
        self._version = -1
        self.supervisor = Supervisor(settings, http, self.server, self, self)

    async def run(self, on_event: Callable[[WeightsPublished], None], caught_up: asyncio.Event) -> None:
        """WeightsFeed."""
        caught_up.set()
        while True:
            on_event(await self._events.get())

    async def report(self, event: WorkerReported) -> None:
        """ReportSink."""
        async with self._reported:
            self.last = event
            self._reported.notify_all()

    async def ready(self, version: int | None, seconds: float = SYNC_S) -> WorkerReported:
        """The first report that says so."""
        async with asyncio.timeout(seconds), self._reported:
            await self._reported.wait_for(
                lambda: (last := self.last) is not None and (last.state, last.version) == ("ready", version)
            )
        assert self.last is not None
        return self.last

    async def push(self, trainer: Offers) -> Mapping[str, float]:
        """The next version; the phases of its sync in ms."""
        self._version += 1
        self._events.put_nowait(await asyncio.to_thread(trainer.stage, self._version))
        return (await self.ready(self._version)).sync_ms

    async def reload_s(self, directory: Path) -> float:
        """The engine's own way: seconds to load a directory in memory, without traffic and without a pause."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
        headers = {CONTROL_HEADER: self.server.secret}
        began = time.monotonic()
        async with self.http.post(f"{self.server.local_url}/collective_rpc", json=body, headers=headers) as reply:
            text = await reply.text()
            if reply.status != 200:
                raise RuntimeError(f"reload_weights: {reply.status} {text[:300]}")
        return time.monotonic() - began

    async def tokens(self) -> float:
        """Sampled so far, by the engine's own count."""
        async with self.http.get(f"{self.server.local_url}/metrics") as reply:
            lines = (await reply.text()).splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:generation_tokens_total"))


@asynccontextmanager
async def worker(model: Path, **settings: Any) -> AsyncIterator[Worker]:  # Any: of any setting
    """Ready with the weights of its directory."""
    with TemporaryDirectory(dir=SHM, prefix="bench-worker-") as folder:
        own = {
            "copies_dir": Path(folder) / "copies",
            "log_file": Path(folder) / "vllm.log",
            "kv_cache_bytes": "1G",
            "max_num_seqs": 64,
            "max_model_len": 512,
        }
        chosen = RolloutSettings(model=model, model_id=MODEL, **{**own, **settings})
        stop = Stop()
        connector = aiohttp.TCPConnector(force_close=True)
        timeout = aiohttp.ClientTimeout(total=SYNC_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
            made = Worker(chosen, http)
            running = asyncio.create_task(made.supervisor.run(stop))
            try:
                await made.ready(None, READY_S)
                yield made
            finally:
                stop.now.set()
                await running


class Clients:
    """So many calls at once, each followed by the next, until it is closed."""

    def __init__(self, worker: Worker, concurrency: int, new_tokens: int) -> None:
        self._worker, self._new_tokens = worker, new_tokens
        self._stop = False
        self._tasks = [asyncio.create_task(self._client(random.Random(n))) for n in range(concurrency)]

    async def close(self) -> None:
        """Until the last is answered. Raises what a client met, or ValueError where a reply was cut."""
        self._stop = True
        await asyncio.gather(*self._tasks)

    async def _client(self, dice: random.Random) -> None:
        url = f"{self._worker.server.local_url}/v1/completions"
        while not self._stop:
            prompt = [dice.randrange(20, 60) for _ in range(16)]
            body = {"model": "policy", "prompt": prompt, "max_tokens": self._new_tokens, "ignore_eos": True}
            async with self._worker.http.post(url, json=body, headers={TOKENS_HEADER: "1"}) as reply:
                answer = await reply.json()
            spans = answer["claw_tokens"][0]["choices"][0]["spans"]
            if not answer["usage"]["completion_tokens"] == self._new_tokens == spans[-1][2]:
                raise ValueError(f"cut: {spans}")

"""The parts of `bench.weights`, each a function that returns its figures. Both sides of a ratio take turns."""

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench.report import Figures
from bench.weights.fleet import (
    MODEL,
    RANK,
    RUN,
    SHM,
    AdapterTrainer,
    Clients,
    Trainer,
    Worker,
    announced,
    models,
    worker,
)
from claw_r1.rollout.fetch import Fetched, fetch
from claw_r1.rollout.settings import RolloutSettings
from claw_r1.runtime.processes import child
from claw_r1.schemas.events import TensorSpec, WeightsPublished
from claw_r1.weights.carry.carrier_handle import CARRIER, Transport, carried_by
from claw_r1.weights.carry.from_carrier import Carriage
from claw_r1.weights.deadline import Deadline
from claw_r1.weights.host_copies import CopyRoom, HostCopies, HostCopy
from claw_r1.weights.manifest import TensorShape
from claw_r1.weights.snapshot import Snapshots
from claw_r1.weights.sources import Base, FromTrainer
from claw_r1.weights.transfer_server import Sent, TransferServer

Span = tuple[float, float]
PERIOD_S = 2.0
WINDOW_S = 16.0
GLOO_BYTES = 64 << 20
"""The bytes of one broadcast: as large as the buckets in which weights once travelled over gloo."""
CONCURRENCY = 64
WARM_STEPS = 3
"""The moments of AdamW are filled by then."""
IDLE_S = 0.5
"""Between two versions, for what is made ready there: a batch takes longer."""


async def pause(repeats: int) -> Figures:
    """Time paused of a sync, as the worker reports it, beside the engine's own `reload_weights` from memory."""
    with models() as directories, Trainer(directories["57m"]) as trainer:
        async with worker(directories["57m"]) as serving:
            syncs, reloads_ms = [], []
            for _ in range(repeats + 1):
                syncs.append(await serving.push(trainer))
                reloads_ms.append(await serving.reload_s(directories["57m"]) * 1000)
    phases = {name: median(sync[name] for sync in syncs[1:]) for name in syncs[0]}
    reload_ms = median(reloads_ms[1:])  # without the first turn, which everybody begins in fresh pages
    return {"pause_ratio": round(phases["paused"] / reload_ms, 3), "reload_ms": round(reload_ms), "sync_ms": phases}


async def adapter(repeats: int) -> Figures:
    """A version that comes as its adapter, beside the whole one from another host: bytes, and milliseconds to fetch it and paused."""
    with models() as directories, Trainer(directories["57m"]) as trainer:
        model, small = directories["57m"], AdapterTrainer(directories["57m"])
        async with worker(model) as whole, worker(model, lora_rank_max=RANK) as adapted:
            pushed = [(await whole.push(trainer), await adapted.push(small)) for _ in range(repeats + 1)]
    whole_ms, adapter_ms = (
        {name: median(ms[name] for ms in side[1:]) for name in side[0]} for side in zip(*pushed, strict=True)
    )
    event = small.stage(repeats + 1)
    assert event.adapter is not None
    return {
        "adapter_bytes_ratio": round(sum(map(_nbytes, event.adapter.manifest)) / event.bytes_total, 4),
        "adapter_ratio": round(_travel(adapter_ms) / _travel(whole_ms), 3),
        "adapter_ms": {name: adapter_ms[name] for name in ("fetch", "paused")},
        "adapter_whole_ms": {name: whole_ms[name] for name in ("fetch", "paused")},
    }


def _travel(sync_ms: Mapping[str, float]) -> float:
    return sync_ms["fetch"] + sync_ms["paused"]


def _nbytes(spec: TensorSpec) -> int:
    return TensorShape(spec.name, spec.dtype, tuple(spec.shape)).nbytes


def transfer(repeats: int) -> Figures:
    """From asking to verified, beside a bare gloo broadcast to one process: by one receiver of another host, by four of it, and by
    one of the trainer's own, which opens its file."""
    with (
        models() as directories,
        tempfile.TemporaryDirectory(dir=SHM) as folder,
        Trainer(directories["57m"], Path(folder) / "host") as trainer,
    ):
        event, gloo_file = trainer.stage(0), f"{folder}/gloo"
        receivers = [_Remote(_receive, f"{folder}/copies") for _ in range(4)]
        own = _Remote(_receive, f"{folder}/host")
        group = [_Remote(_broadcast, gloo_file, rank, event.bytes_total) for rank in range(2)]
        spans: dict[str, list[float]] = {"one": [], "four": [], "late": [], "own": [], "gloo": []}
        for _ in range(repeats + 1):
            spans["one"].append(_together(receivers[:1], event))
            spans["late"].append(_together(receivers[1:2], event))
            _together(receivers[:2], None)
            spans["own"].append(_together([own], event))
            _together([own], None)
            time.sleep(IDLE_S)
            spans["gloo"].append(_together(group, None))
            spans["four"].append(_together(receivers, event))
            _together(receivers, None)
            time.sleep(IDLE_S)
    seconds = {name: median(values[1:]) for name, values in spans.items()}
    return {
        "transfer_ratio": round(seconds["one"] / seconds["gloo"], 2),
        "transfer_host_ratio": round(seconds["own"] / seconds["gloo"], 3),
        "fleet_ratio": round(seconds["four"] / seconds["one"], 2),
        "late_s": round(seconds["late"], 4),
        **{f"transfer_{name}_s": round(seconds[name], 3) for name in ("one", "four", "own", "gloo")},
    }


class _Remote:
    """A process that does one thing whenever it is sent an argument, and says when it began and ended. It ends with its part."""

    def __init__(self, work: Callable[..., Callable[[Any], None]], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        context.Process(target=_serve, args=(theirs, work, *arguments), daemon=True).start()


def _serve(pipe: "Connection[Any, Any]", work: Callable[..., Callable[[Any], None]], *arguments: object) -> None:
    torch.set_num_threads(1)
    do = work(*arguments)
    with suppress(EOFError):
        while True:
            argument = pipe.recv()
            began = time.monotonic()
            do(argument)
            pipe.send((began, time.monotonic()))


def _together(processes: Sequence[_Remote], argument: object) -> float:
    """Seconds from the first that begins to the last that is done."""
    for process in processes:
        process.pipe.send(argument)
    spans: list[Span] = [process.pipe.recv() for process in processes]
    return max(end for _, end in spans) - min(began for began, _ in spans)


def _receive(directory: str, transports: Sequence[Transport] = ("http",)) -> Callable[[WeightsPublished | None], None]:
    """Gets a version as a worker does, and holds it; None: lets the oldest go."""
    settings = RolloutSettings(model=Path(directory), model_id=MODEL, copies_dir=Path(directory), worker_id=directory)
    held: list[Fetched] = []
    loop = asyncio.new_event_loop()  # whose threads stay: a carrier ends with the one that started it
    carriage, room = Carriage(carried_by(transports, lambda: True), partial(child.start_spoken_to, CARRIER)), CopyRoom()

    def get(event: WeightsPublished | None) -> None:
        if event is None:
            before = held.pop(0)
            before.copy.close()
            room.prepare(before.copy, before.manifest.bytes_flat)
        else:
            held.append(loop.run_until_complete(fetch(settings, event, (), carriage, room)))
            if carriage.transports and held[-1].source not in carriage.transports:
                raise RuntimeError(f"it came by {held[-1].summary()}")

    return get


def _broadcast(file: str, rank: int, nbytes: int, world: int = 2) -> Callable[[object], None]:
    """All bytes from rank 0 to the others, bare; buffers are used again."""
    import torch.distributed as dist

    dist.init_process_group("gloo", f"file://{file}", rank=rank, world_size=world, timeout=timedelta(seconds=60))
    buffers = torch.zeros(nbytes, dtype=torch.uint8).split(GLOO_BYTES)

    def send(_: object) -> None:
        dist.barrier()
        for buffer in buffers:
            dist.broadcast(buffer, 0)
        dist.barrier()

    return send


def carrier(repeats: int) -> Figures:
    """From asking to verified at two receivers of other hosts, by one collective over gloo and by HTTP, beside a bare broadcast to as many."""
    with (
        models() as directories,
        tempfile.TemporaryDirectory(dir=SHM) as folder,
        Trainer(directories["57m"]) as trainer,
    ):
        nbytes = trainer.stage(0).bytes_total
        ways = {"carried": ("gloo", "http"), "http": ("http",)}
        processes = {
            way: [_Remote(_receive, f"{folder}/{way}{host}", names) for host in range(2)] for way, names in ways.items()
        }
        processes["gloo"] = [_Remote(_broadcast, f"{folder}/gloo", rank, nbytes, 3) for rank in range(3)]
        spans: dict[str, list[float]] = {way: [] for way in processes}
        for version in range(1, repeats + 2):
            event = trainer.stage(version)
            for way, hosts in processes.items():
                spans[way].append(_together(hosts, event))
                if way in ways:
                    _together(hosts, None)
                    time.sleep(IDLE_S)
    seconds = {way: median(values[1:]) for way, values in spans.items()}
    return {
        "carrier_ratio": round(seconds["carried"] / seconds["gloo"], 2),
        **{f"carrier_{way}_s": round(value, 3) for way, value in seconds.items()},
    }


async def throughput(repeats: int) -> Figures:
    """Tokens per second with a version every 2 s, beside none: demo model with 64 replies at once, 57 M with 8."""
    figures: Figures = {}
    with models() as directories:
        for name, suffix, concurrency in (("demo", "_demo", CONCURRENCY), ("57m", "", 8)):
            copies = directories[name].parent / "copies"
            with Trainer(directories[name], copies) as trainer:
                async with worker(directories[name], copies_dir=copies) as serving:
                    clients = Clients(serving, concurrency, new_tokens=32)
                    rates: dict[bool, list[float]] = {False: [], True: []}
                    await _rate(serving, trainer, pushing=True, window_s=2 * PERIOD_S)  # not counted
                    for turn in range(2 * repeats):
                        rates[bool(turn % 2)].append(await _rate(serving, trainer, pushing=bool(turn % 2)))
                    await clients.close()
            kept, alone = median(rates[True]), median(rates[False])
            figures |= {
                f"throughput_kept{suffix}": round(kept / alone, 3),
                f"tokens_per_s{suffix}": round(alone),
            }
    return figures


async def _rate(serving: Worker, trainer: Trainer, *, pushing: bool, window_s: float = WINDOW_S) -> float:
    """Tokens per second over a window."""
    began, tokens = time.monotonic(), await serving.tokens()
    for due in range(int(window_s / PERIOD_S)):
        if pushing:
            await serving.push(trainer)
        await asyncio.sleep(max(0.0, began + (due + 1) * PERIOD_S - time.monotonic()))
    return (await serving.tokens() - tokens) / (time.monotonic() - began)


def halt(repeats: int) -> Figures:
    """The time of the trainer's loop from the last step to staged, beside one copy of the bytes; and what a host's memory holds, its
    trainer's and two workers', in versions."""
    with models() as directories, tempfile.TemporaryDirectory(dir=SHM) as folder:
        host, module = Path(folder) / "host", _loaded(directories["57m"])
        nbytes = sum(parameter.nbytes for parameter in module.parameters())
        source, target = torch.zeros(nbytes, dtype=torch.uint8), torch.zeros(nbytes, dtype=torch.uint8)
        workers = [_Remote(_receive, str(host)) for _ in range(2)]
        spans: dict[str, list[float]] = {"halt": [], "copy": []}
        server, snapshots, held, before = TransferServer(), Snapshots(HostCopies(host).directory), [], _shared_bytes()
        for version in range(repeats + 2):
            began = time.monotonic()
            target.copy_(source)
            copied = time.monotonic()
            snapshot = snapshots.take((name, p.detach()) for name, p in module.named_parameters())
            server.stage(RUN, version, snapshot)
            staged = time.monotonic()
            spans["halt"].append(staged - copied)
            spans["copy"].append(copied - began)
            event = announced(version, server.url, snapshot.manifest)
            for each in workers:
                _together([each], event)
                if version:  # it held the one before
                    _together([each], None)
            del snapshot
            server.settle(RUN, version)
            snapshots.prepare()
            with torch.no_grad():
                next(module.parameters()).add_(1e-3)
            time.sleep(IDLE_S)
            held.append((_shared_bytes() - before) / nbytes)
        server.close()
    seconds = {name: median(values[2:]) for name, values in spans.items()}
    return {
        "trainer_halt_ratio": round(seconds["halt"] / seconds["copy"], 2),
        "trainer_halt_s": round(seconds["halt"], 4),
        "memcpy_s": round(seconds["copy"], 4),
        "host_copies": round(max(held[2:]), 2),
    }


def patch(repeats: int) -> Figures:
    """A version as a patch beside the whole of it: bytes, and CPU of both ends in one process; bf16, AdamW at 1e-6 on random gradients."""
    with models() as directories, tempfile.TemporaryDirectory(dir=SHM) as folder:
        module, torch_seed = _loaded(directories["57m"]), torch.manual_seed(0)
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-6)
        sent: list[Sent] = []
        servers = {kind: TransferServer(on_sent=sent.append) for kind in ("whole", "patch")}
        snapshots, held = Snapshots(), list[HostCopy]()
        cpu_s: dict[str, list[float]] = {"whole": [], "patch": []}
        base: Base | None = None
        for version in range(repeats + WARM_STEPS):
            for parameter in module.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=torch_seed)
            optimizer.step()
            snapshot = snapshots.take((name, p.detach().bfloat16()) for name, p in module.named_parameters())
            manifest = snapshot.manifest
            for kind, used in (("whole", None), ("patch", base)):
                began = time.process_time()
                servers[kind].stage(RUN, version, snapshot)
                url = servers[kind].url
                source = FromTrainer(url, RUN, version, worker_id="bench", connect_timeout_s=60, base=used)
                held.append(HostCopies(Path(folder) / kind).take(manifest, source, Deadline(60)))
                cpu_s[kind].append(time.process_time() - began)
            for copy in held[:-1]:
                copy.close()
            held, base = held[-1:], Base(manifest.digest, held[-1].path)
            for server in servers.values():
                server.settle(RUN, version)
        for server in servers.values():
            server.close()
        whole, patched = (sent[-2].bytes_total, sent[-1].bytes_total)
    seconds = {name: median(values[WARM_STEPS:]) for name, values in cpu_s.items()}
    return {
        "patch_bytes_ratio": round(patched / whole, 4),
        "patch_cpu_ratio": round(seconds["patch"] / seconds["whole"], 2),
        **{f"patch_{name}_cpu_s": round(value, 3) for name, value in seconds.items()},
    }


def _loaded(directory: Path) -> torch.nn.Module:
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    module: torch.nn.Module = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return module


def _shared_bytes() -> int:
    """The memory of this machine that lies in files: what others change meanwhile is counted, too."""
    (line,) = (line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("Shmem:"))
    return int(line.split()[1]) * 1024

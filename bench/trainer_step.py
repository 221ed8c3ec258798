"""The costs of one optimizer step: `python -m bench.trainer --only step`. One thread, CPU seconds,
medians.

`head_ratio`: forward and backward of the head (32k ids, width 512) over all of 2,048 positions with their softmax and entropy held,
over the head in parts at the fifth of them that is trained. `head_peak_mb`: most memory beyond weights and gradients
while 4,096 tokens are scored and differentiated with 152k ids, in a process of its own. `zero_advantage_ratio`: a batch in
which 6 of 8 groups have advantage 0 over one in which none has. `deepspeed_overhead`: a step of 57 M parameters on 4,096 tokens
through the engine at ZeRO 0 over the same in plain torch. `lora_ratio`: the same step with adapters of rank 8 on every linear
layer over that of all weights. Repeats of both sides take turns.
"""

import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from claw_r1.trainer.algorithms.losses import bound
from claw_r1.trainer.learn import model as models
from claw_r1.trainer.learn.engine import EngineSettings, TrainingEngine
from claw_r1.trainer.learn.examples import Example
from claw_r1.trainer.learn.head import score
from claw_r1.trainer.learn.layouts import padded_rows
from claw_r1.trainer.learn.objective import Objective, summed
from claw_r1.trainer.learn.policy_model import PolicyModel
from claw_r1.trainer.sections.lora import LoraSettings

OBJECTIVE = Objective(loss=bound("ppo_clip", clip_low=0.2, clip_high=0.28))
ENGINE = EngineSettings(learning_rate=1e-6, device="cpu", precision="fp32", layout="rows")
GROUPS, MEMBERS = 8, 8
PEAK = "import bench.trainer_step as step; print(step.head_peak_mb())"
SIZES = {
    "small": {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4},
    "57M": {"vocab_size": 32_768, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 12},
}


def measure() -> dict[str, float]:
    """All figures, and both sides of each ratio in CPU seconds."""
    torch.set_num_threads(1)
    peak = subprocess.run([sys.executable, "-c", PEAK], stdout=subprocess.PIPE, text=True, check=True)
    figures = {"head_peak_mb": round(float(peak.stdout.splitlines()[-1]), 1)}
    figures |= _ratio("head_ratio", ("plain", "parts"), head_sides(), repeats=9)
    with tempfile.TemporaryDirectory(prefix="bench-trainer-step-") as folder:
        figures |= _ratio("zero_advantage_ratio", ("silent", "all"), zero_advantage_sides(Path(folder)), repeats=5)
        figures |= _ratio("deepspeed_overhead", ("engine", "torch"), engine_sides(Path(folder)), repeats=3)
        figures |= _ratio("lora_ratio", ("adapters", "weights"), lora_sides(Path(folder)), repeats=5)
    return figures


def _ratio(
    name: str, labels: tuple[str, str], sides: tuple[Callable[[], object], Callable[[], object]], *, repeats: int
) -> dict[str, float]:
    """First over second, after one turn of each that is not counted."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats + 1):
        for side, spent in zip(sides, seconds, strict=True):
            began = time.process_time()
            side()
            if turn:
                spent.append(time.process_time() - began)
    first, second = map(statistics.median, seconds)
    stem = name.rsplit("_", 1)[0]
    return {
        name: round(first / second, 3),
        f"{stem}_{labels[0]}_cpu_s": round(first, 3),
        f"{stem}_{labels[1]}_cpu_s": round(second, 3),
    }


def head_sides(positions: int = 2048, trained: int = 410, width: int = 512, ids: int = 32_768):  # type: ignore[no-untyped-def]  # two functions
    """Returns the head's two sides: the former code and the present one."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(ids, width) / width**0.5)
    hidden = torch.randn(positions, width, requires_grad=True)
    targets, at = torch.randint(0, ids, (positions,)), torch.randperm(positions)[:trained].sort().values

    def plain() -> None:
        everywhere = torch.log_softmax((hidden @ weight.t()).float(), dim=-1)
        chosen = everywhere.gather(-1, targets[:, None]).squeeze(-1)
        with torch.no_grad():
            -(everywhere.exp() * everywhere).sum(-1)
        chosen[at].sum().backward()

    def parts() -> None:
        score(hidden[at], weight, targets[at], torch.ones(trained)).logprobs.sum().backward()

    return plain, parts


def head_peak_mb(tokens: int = 4096, width: int = 512, ids: int = 151_936) -> float:
    """Returns the peak memory of this process, which has done nothing else."""
    torch.set_num_threads(1)
    weight = torch.nn.Parameter(torch.full((ids, width), 0.01))
    hidden = torch.randn(tokens, width, requires_grad=True)
    targets = torch.randint(0, ids, (tokens,))
    score(hidden[:16], weight.detach()[:64], targets[:16] % 64, torch.ones(16)).logprobs.sum().backward()
    hidden.grad = None
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = pages * resource.getpagesize()
    score(hidden, weight, targets, torch.ones(tokens)).logprobs.sum().backward()
    assert weight.grad is not None and hidden.grad is not None  # noqa: PT018  # for the type checker
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (after - before - weight.grad.nbytes - hidden.grad.nbytes) / 1e6


def zero_advantage_sides(folder: Path):  # type: ignore[no-untyped-def]  # two functions
    """A step on a batch with 6 of 8 groups equal, and on one with none, by the same engine."""
    engine = TrainingEngine(_model(folder, "small"), ENGINE)
    examples = [_example(n // MEMBERS, n, 128, 64) for n in range(GROUPS * MEMBERS)]
    silent = [
        replace(each, advantages=np.zeros_like(each.advantages)) if each.group < GROUPS - 2 else each
        for each in examples
    ]

    def step(batch: list[Example]) -> None:
        scaled = OBJECTIVE.scaled(batch, len(batch))
        engine.train(scaled, OBJECTIVE, version=0, seed=0)

    return lambda: step(silent), lambda: step(examples)


def engine_sides(folder: Path):  # type: ignore[no-untyped-def]  # two functions
    """One step through the engine, and the same forward pass, loss, clipping and AdamW in plain torch."""
    directory = _model(folder, "57M")
    examples = OBJECTIVE.scaled([_example(0, n, 512, 128) for n in range(8)], 8)
    engine = TrainingEngine(directory, ENGINE)
    policy = PolicyModel(models.load(directory, "fp32")).train()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6, weight_decay=0.0)

    def plain() -> None:
        batch = padded_rows(examples, torch.device("cpu"))
        tokens = batch.tokens
        scores = policy(batch.ids, batch.positions, batch.attention, tokens.at, tokens.ids, tokens.temperatures)
        summed(OBJECTIVE.losses(tokens, scores), tokens).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return lambda: engine.train(examples, OBJECTIVE, version=0, seed=0), plain


def lora_sides(folder: Path):  # type: ignore[no-untyped-def]  # two functions
    """Returns one step of adapters, and one of all weights."""
    directory = _model(folder, "57M")
    examples = OBJECTIVE.scaled([_example(0, n, 512, 128) for n in range(8)], 8)
    engines = (TrainingEngine(directory, replace(ENGINE, lora=LoraSettings(rank=rank))) for rank in (8, 0))
    adapters, weights = (partial(engine.train, examples, OBJECTIVE, version=0, seed=0) for engine in engines)
    return adapters, weights


def _model(folder: Path, size: str) -> Path:
    torch.manual_seed(0)
    config = Qwen3Config(num_attention_heads=8, num_key_value_heads=4, head_dim=64, **SIZES[size])
    Qwen3ForCausalLM(config).save_pretrained(folder / size)
    return folder / size


def _example(group: int, index: int, length: int, sampled: int) -> Example:
    """Random ids, of which the last ones were sampled."""
    dice = random.Random(index)
    advantage = 1.0 if index % 2 else -1.0

    def same(value: float) -> np.ndarray:
        return np.full(sampled, value, dtype=np.float32)

    return Example(
        ids=np.array([dice.randrange(4096) for _ in range(length)], dtype=np.int32),
        at=np.arange(length - sampled, length),
        behaviour=same(-8.0),
        temperatures=same(1.0),
        advantages=same(advantage),
        versions=np.zeros(sampled, dtype=np.int64),
        responses=np.full(sampled, index, dtype=np.int64),
        trajectories=np.full(sampled, index, dtype=np.int64),
        rewards=same(0.0),
        weights=np.tile(np.array([1, 0, 1], dtype=np.float32), (sampled, 1)),
        scale=same(1.0),
        group=group,
    )

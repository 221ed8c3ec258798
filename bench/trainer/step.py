"""The costs of one optimizer step: `python -m bench.trainer --only step`. One thread, CPU seconds, medians.

`head_peak_mb`: most memory beyond weights and gradients while 4,096 tokens are scored and differentiated with 152k ids, in a
process of its own. `deepspeed_overhead`: a step of 57 M parameters on 4,096 tokens through the engine at ZeRO 0 over the same
in plain torch. `lora_ratio`: the same step with adapters of rank 8 on every linear layer over that of all weights.
"""

import random
import resource
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from bench.examples import example
from bench.medians import Work, in_turns
from bench.models import Shape, make
from bench.report import Figures
from claw_r1.trainer.algorithms.losses import bound
from claw_r1.trainer.config.lora import LoraSettings
from claw_r1.trainer.learn import model as models
from claw_r1.trainer.learn.engine import EngineSettings, TrainingEngine
from claw_r1.trainer.learn.examples import Example
from claw_r1.trainer.learn.layouts import padded_rows
from claw_r1.trainer.learn.logprobs import score
from claw_r1.trainer.learn.objective import Objective, summed
from claw_r1.trainer.learn.policy_model import PolicyModel

OBJECTIVE = Objective(loss=bound("ppo_clip", clip_low=0.2, clip_high=0.28))
ENGINE = EngineSettings(learning_rate=1e-6, device="cpu", precision="fp32", layout="rows")
PEAK = "import bench.trainer.step as step; print(step.head_peak_mb())"
SHAPE = Shape(vocabulary=32_768, tied=False)
"""57 M parameters."""


def measure(repeats: int) -> Figures:
    """The ratios, and their sides in CPU seconds."""
    torch.set_num_threads(1)
    peak = subprocess.run([sys.executable, "-c", PEAK], stdout=subprocess.PIPE, text=True, check=True)
    with tempfile.TemporaryDirectory(prefix="bench-trainer-step-") as folder:
        directory = make(Path(folder) / "57M", SHAPE)
        examples = OBJECTIVE.scaled([_example(member, 512, 128) for member in range(8)], 8)
        engine, adapters = (TrainingEngine(directory, replace(ENGINE, lora=LoraSettings(rank=rank))) for rank in (0, 8))
        sides = {
            "engine": partial(engine.train, examples, OBJECTIVE, version=0, seed=0),
            "adapters": partial(adapters.train, examples, OBJECTIVE, version=0, seed=0),
            "torch": plain(directory, examples),
        }
        seconds = in_turns(sides, repeats)
    return {
        "head_peak_mb": float(peak.stdout.splitlines()[-1]),
        "deepspeed_overhead": seconds["engine"] / seconds["torch"],
        "lora_ratio": seconds["adapters"] / seconds["engine"],
        **{f"step_{name}_cpu_s": each for name, each in seconds.items()},
    }


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


def plain(directory: Path, examples: list[Example]) -> Work:
    """The same forward pass, loss, clipping and AdamW in plain torch."""
    policy = PolicyModel(models.load(directory, "fp32")).train()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6, weight_decay=0.0)

    def step() -> None:
        batch = padded_rows(examples, torch.device("cpu"))
        tokens = batch.tokens
        scores = policy(batch.ids, batch.positions, batch.attention, tokens.at, tokens.ids, tokens.temperatures)
        summed(OBJECTIVE.losses(tokens, scores), tokens).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _example(member: int, length: int, sampled: int) -> Example:
    """Random ids, of which the last ones were sampled."""
    dice = random.Random(member)
    ids = [dice.randrange(4096) for _ in range(length)]
    advantage = 1.0 if member % 2 else -1.0
    return example(ids, range(length - sampled, length), advantage, -8.0, member=member)

"""Verbs through the whole system, 5 seeds, beside GRPO in plain torch in one process at equal episodes.

The system: `claw demo` with as many batches for each seed (Kafka, gateway, vLLM, DeepSpeed, agents). The other side plays the same
environment with the same model, 64 episodes a batch, one version behind as the demo's agents are. The band is mean +- 2 standard deviations
of the plain loop's rewards over the seeds, each a mean of five batches, and at least .1 wide to each side.
`share_within_band`: of the batches, those at which the system's mean lies in the band or above; `reward_last_min`: of its worst seed.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev

import torch

from bench import verbs
from bench.in_process import InProcessLoop
from bench.plain_loop import PlainLearner
from bench.report import ROOT, Figures

WINDOW = 5
HALF_BAND_MIN = 0.1
TIMEOUT_S = 900.0


def measure(demos: int, batches: int) -> Figures:
    """Curves of both sides, and how they lie to each other."""
    torch.set_num_threads(1)
    plain = [smoothed(in_process(seed, batches)) for seed in range(demos)]
    system = [smoothed(whole_system(seed, batches)) for seed in range(demos)]
    (middle, low), (ours, _) = band(plain), band(system)
    return {
        "verbs": {
            "share_within_band": fmean(float(value >= bottom) for value, bottom in zip(ours, low, strict=True)),
            "reward_last": ours[-1],
            "reward_last_min": min(curve[-1] for curve in system),
            "reward_last_plain": middle[-1],
        },
        "_verbs_curves": {"system": system, "plain": plain},
    }


def in_process(seed: int, batches: int) -> list[float]:
    """Rewards per batch of the plain loop."""
    with verbs.settings(seed) as settings:
        return InProcessLoop(settings, PlainLearner(settings), verbs.verbs, lag=1).run(batches)


def whole_system(seed: int, batches: int) -> list[float]:
    """Rewards per batch of `claw demo`, read from its metrics."""
    bounds = ("--batches-min", str(batches), "--batches-max", str(batches))
    words = ("demo", "--seed", str(seed), *bounds, "--prefix", "benchverbs", "--json")
    command = [sys.executable, "-m", "claw_r1.claw", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=TIMEOUT_S)
    result = json.loads(done.stdout.strip().splitlines()[-1])  # its own targets may be missed: that is no failure here
    metrics = Path(result["plot"]).parent / "trainer" / "metrics.jsonl"
    return [json.loads(line)["reward"] for line in metrics.read_text().splitlines()]


def smoothed(rewards: Sequence[float]) -> list[float]:
    """Means of the last five."""
    return [fmean(rewards[max(0, n - WINDOW + 1) : n + 1]) for n in range(len(rewards))]


def band(curves: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """The middle per batch, and the bottom."""
    points = list(zip(*curves, strict=True))
    return [*map(fmean, points)], [fmean(values) - max(2 * pstdev(values), HALF_BAND_MIN) for values in points]

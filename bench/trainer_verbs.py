"""Verbs through the whole system, 5 seeds, beside GRPO in plain torch in one process at equal episodes: bands as PNG.

The system: `claw demo` with as many batches for each seed (Kafka, gateway, vLLM, DeepSpeed, agents). The other side plays the same
environment with the same model, 64 episodes a batch, one version behind as the demo's agents are. The band is mean +- 2 standard deviations
of the plain loop's rewards over the seeds, each a mean of five batches, and at least .1 wide to each side.
`share_within_band`: of the batches, those at which the system's mean lies in the band or above.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch

from bench import verbs
from bench.in_process import InProcessLoop
from bench.plain_loop import PlainLearner

SEEDS = (0, 1, 2, 3, 4)
BATCHES = 30
WINDOW = 5
HALF_BAND_MIN = 0.1
ROOT = Path(__file__).resolve().parents[1]
PICTURE = Path(__file__).parent / "out" / "trainer_verbs.png"
TIMEOUT_S = 900.0


def measure() -> dict[str, Any]:
    """Curves of both sides, and how they lie to each other."""
    torch.set_num_threads(1)
    plain = [smoothed(in_process(seed)) for seed in SEEDS]
    system = [smoothed(whole_system(seed)) for seed in SEEDS]
    low, middle, high = band(plain)
    ours = [fmean(curve[n] for curve in system) for n in range(BATCHES)]
    draw(system, (low, middle, high))
    return {
        "verbs": {
            "share_within_band": fmean(float(value >= bottom) for value, bottom in zip(ours, low, strict=True)),
            "reward_last": round(ours[-1], 4),
            "reward_last_plain": round(middle[-1], 4),
            "picture": str(PICTURE.relative_to(ROOT)),
        },
        "_verbs_curves": {"system": system, "plain": plain},
    }


def in_process(seed: int) -> list[float]:
    """Rewards per batch of the plain loop."""
    with verbs.settings(seed) as settings:
        return InProcessLoop(settings, PlainLearner(settings), verbs.verbs, lag=1).run(BATCHES)


def whole_system(seed: int) -> list[float]:
    """Rewards per batch of `claw demo`, read from its metrics."""
    bounds = ["--batches-min", str(BATCHES), "--batches-max", str(BATCHES)]
    command = [
        sys.executable,
        "-m",
        "claw_r1.claw",
        "demo",
        "--seed",
        str(seed),
        *bounds,
        "--prefix",
        "benchverbs",
        "--json",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, text=True, check=False, timeout=TIMEOUT_S
    )
    result = json.loads(done.stdout.strip().splitlines()[-1])  # its own targets may be missed: that is no failure here
    metrics = Path(result["plot"]).parent / "trainer" / "metrics.jsonl"
    return [json.loads(line)["reward"] for line in metrics.read_text().splitlines()]


def smoothed(rewards: Sequence[float]) -> list[float]:
    """Means of the last five."""
    return [fmean(rewards[max(0, n - WINDOW + 1) : n + 1]) for n in range(len(rewards))]


def band(curves: Sequence[Sequence[float]]) -> tuple[list[float], list[float], list[float]]:
    """Bottom, middle and top per batch."""
    points = [[curve[n] for curve in curves] for n in range(BATCHES)]
    middle = [fmean(values) for values in points]
    half = [max(2 * pstdev(values), HALF_BAND_MIN) for values in points]
    return (
        [m - h for m, h in zip(middle, half, strict=True)],
        middle,
        [m + h for m, h in zip(middle, half, strict=True)],
    )


def draw(system: Sequence[Sequence[float]], plain: tuple[list[float], list[float], list[float]]) -> None:
    """Both bands into `PICTURE`."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    low, middle, high = band(system)
    for colour, (bottom, centre, top), label in (
        ("tab:grey", plain, "plain torch, one process"),
        ("tab:blue", (low, middle, high), "whole system"),
    ):
        axes.fill_between(range(BATCHES), bottom, top, color=colour, alpha=0.2)
        axes.plot(centre, color=colour, label=f"{label}: mean of {len(SEEDS)} seeds")
    for curve in system:
        axes.plot(curve, color="tab:blue", alpha=0.3, linewidth=0.8)
    axes.set(xlabel="batch of 64 episodes", ylabel=f"reward, mean of {WINDOW} batches", ylim=(0, 1.05))
    axes.set_title(f"verbs, {len(SEEDS)} seeds; bands: 2 standard deviations, at least {HALF_BAND_MIN}")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)
    plt.close(figure)

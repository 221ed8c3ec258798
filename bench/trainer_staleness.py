"""Learning under staleness: batches until the mean of the last five reaches .9, verbs in one process.

Lag n: each batch was sampled by the weights of n versions before. 0, 1, 2, 4 x no correction, TIS, decoupled PPO x 3 seeds.
`batches_lost_by_corrections`: the most by which the median of a correction is above the median of none, over the lags.
"""

import json
from statistics import median

import torch

from bench import verbs
from bench.in_process import InProcessLoop, batches_until
from trainer.compose import learner_of

LAGS, CORRECTIONS, SEEDS = (0, 1, 2, 4), ("none", "tis", "decoupled"), (0, 1, 2)
GOAL = 0.9
BATCHES_MAX = 60


def measure() -> dict[str, object]:
    """Batches by lag and correction, one per seed; a run that never reaches the goal counts `BATCHES_MAX` + 1."""
    torch.set_num_threads(1)
    figures: dict[str, dict[str, list[int]]] = {}
    for lag in LAGS:
        figures[f"lag_{lag}"] = {name: [batches(lag, name, seed) for seed in SEEDS] for name in CORRECTIONS}
    lost = [median(by_name[name]) - median(by_name["none"]) for by_name in figures.values() for name in CORRECTIONS[1:]]
    return {"staleness": {**figures, "batches_lost_by_corrections": max(lost)}}


def batches(lag: int, correction: str, seed: int) -> int:
    """Until the goal."""
    with verbs.settings(seed, objective={"correction": correction}) as settings:
        rewards = InProcessLoop(settings, learner_of(settings), verbs.verbs, lag).run(BATCHES_MAX, GOAL)
    return batches_until(rewards, GOAL) or BATCHES_MAX + 1


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))

"""Learning under staleness: batches until the mean of the last five reaches .9, verbs in one process.

Lag n: each batch was sampled by the weights of n versions before. 0, 1, 2, 4 x four ways x 3 seeds. A correction is compared
with none at as many optimizer steps: TIS at one step per batch, where decoupled PPO is the same computation, and decoupled PPO at
2 minibatches x 2 epochs. `batches_lost`: by correction, the most by which its median is above that of its counterpart,
over the lags.

One run: `python -c "from bench.trainer_staleness import batches; print(batches(4, 'tis', 0))"`.
"""

import json
from collections.abc import Mapping
from statistics import median

import torch

from bench import verbs
from bench.in_process import InProcessLoop, batches_until
from claw_r1.trainer.compose import learner_of

LAGS, SEEDS = (0, 1, 2, 4), (0, 1, 2)
STEPS_2X2 = {"minibatches": 2, "epochs": 2}
WAYS: Mapping[str, Mapping[str, object]] = {
    "none": {"correction": "none"},
    "tis": {"correction": "tis"},
    "none_2x2": {"correction": "none", **STEPS_2X2},
    "decoupled_2x2": {"correction": "decoupled", **STEPS_2X2},
}
"""Name -> settings of the objective."""
COUNTERPARTS = {"tis": "none", "decoupled_2x2": "none_2x2"}
GOAL = 0.9
BATCHES_MAX = 60


def measure() -> dict[str, object]:
    """Batches by lag and way, one per seed; a run that never reaches the goal counts `BATCHES_MAX` + 1."""
    torch.set_num_threads(1)
    figures: dict[str, dict[str, list[int]]] = {}
    for lag in LAGS:
        figures[f"lag_{lag}"] = {name: [batches(lag, name, seed) for seed in SEEDS] for name in WAYS}
    lost = {
        name: max(median(by[name]) - median(by[other]) for by in figures.values())
        for name, other in COUNTERPARTS.items()
    }
    return {"staleness": {**figures, "batches_lost": lost}}


def batches(lag: int, way: str, seed: int) -> int:
    """Until the goal."""
    with verbs.settings(seed, objective=dict(WAYS[way])) as settings:
        rewards = InProcessLoop(settings, learner_of(settings), verbs.verbs, lag).run(BATCHES_MAX, GOAL)
    return batches_until(rewards, GOAL) or BATCHES_MAX + 1


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))

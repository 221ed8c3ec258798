"""PPO with a critic on verbs, in one process: at most 60 batches, the demo's settings with algorithm gae.

`reward_last`: mean of the last five batches, per seed. `batches`: until that mean reached .85.
"""

import torch

from bench import verbs
from bench.in_process import InProcessLoop, batches_until
from bench.report import Figures
from claw_r1.trainer.compose import learner_of

GOAL = 0.85
BATCHES_MAX = 60


def measure(seeds: int) -> Figures:
    """The worst seed decides."""
    torch.set_num_threads(1)
    last, batches = [], []
    for seed in range(seeds):
        with verbs.settings(seed, {"algorithm": "gae"}) as settings:
            rewards = InProcessLoop(settings, learner_of(settings), verbs.verbs).run(BATCHES_MAX, GOAL)
        last.append(sum(rewards[-5:]) / 5)
        batches.append(batches_until(rewards, GOAL) or BATCHES_MAX + 1)
    return {"critic": {"reward_last": last, "reward_last_min": min(last), "batches": batches}}

"""PPO with a critic on verbs, in one process: 3 seeds, at most 60 batches, the demo's settings with algorithm gae.

`reward_last`: mean of the last five batches, per seed. `batches`: until that mean reached .85.
"""

import torch

from bench import verbs
from bench.in_process import InProcessLoop, batches_until
from claw_r1.trainer.compose import learner_of

SEEDS = (0, 1, 2)
GOAL = 0.85
BATCHES_MAX = 60


def measure() -> dict[str, object]:
    """The worst seed decides."""
    torch.set_num_threads(1)
    last, batches = [], []
    for seed in SEEDS:
        with verbs.settings(seed, {"algorithm": "gae"}) as settings:
            rewards = InProcessLoop(settings, learner_of(settings), verbs.verbs).run(BATCHES_MAX, GOAL)
        last.append(round(sum(rewards[-5:]) / 5, 4))
        batches.append(batches_until(rewards, GOAL) or BATCHES_MAX + 1)
    return {"critic": {"reward_last": last, "reward_last_min": min(last), "batches": batches}}

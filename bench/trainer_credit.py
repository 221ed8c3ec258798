"""Credit: episodes with right and wrong steps, step-level advantages against those of the trajectory, in one process.

The game shows four observations of verbs, whatever the answers; each right answer earns a quarter at once. So a trajectory of
return .5 has two steps to learn from and two to unlearn. `reward_ahead`: mean reward of the last five of 30 batches, step_grpo
less grpo, mean over the seeds; 5 seeds.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import torch

from bench import verbs
from bench.in_process import Game, InProcessLoop
from claw_r1.claw.demo.verbs.environment import Task, right_call
from claw_r1.trainer.compose import learner_of

SEEDS = (0, 1, 2, 3, 4)
BATCHES = 30
TURNS = 4


@dataclass(slots=True)
class FourTurns:
    """One episode; a wrong answer ends nothing."""

    observations: tuple[str, ...]
    index: int = 0

    def observe(self) -> str | None:
        return self.observations[self.index] if self.index < len(self.observations) else None

    def answer(self, text: str) -> float:
        right = text == right_call(self.observations[self.index])
        self.index += 1
        return right / len(self.observations)


def four_turns(dice: random.Random) -> Callable[[], Game]:
    """A task: observations of two tasks of verbs."""
    shown = [o for _ in range(TURNS) for o in Task.from_seed(dice.getrandbits(62)).observations]
    return lambda: FourTurns(tuple(shown[:TURNS]))


def reward_last(algorithm: str, seed: int) -> float:
    """Mean of the last five batches."""
    with verbs.settings(seed, {"algorithm": algorithm}) as settings:
        return round(fmean(InProcessLoop(settings, learner_of(settings), four_turns).run(BATCHES)[-5:]), 4)


def measure() -> dict[str, object]:
    """Rewards per seed."""
    torch.set_num_threads(1)
    step, trajectory = ([reward_last(algorithm, seed) for seed in SEEDS] for algorithm in ("step_grpo", "grpo"))
    return {
        "credit": {
            "step_level": step,
            "trajectory_level": trajectory,
            "reward_ahead": round(fmean(step) - fmean(trajectory), 4),
        }
    }

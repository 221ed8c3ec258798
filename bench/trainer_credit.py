"""Credit: episodes with right and wrong steps, step-level advantages against those of the trajectory, 5 seeds, in one process.

The game shows four observations of verbs, whatever the answers; each right answer earns a quarter at once. So a trajectory of
return .5 has two steps to learn from and two to unlearn. `batches_won`: mean over the seeds of the batches that
grpo takes longer than step_grpo until the mean of its last five reaches .9.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import torch

from bench import verbs
from bench.in_process import Game, InProcessLoop, batches_until
from examples.verbs.environment import Task, right_call
from trainer.compose import learner_of

SEEDS = (0, 1, 2, 3, 4)
GOAL = 0.9
BATCHES_MAX = 60
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


def batches(algorithm: str, seed: int) -> int:
    """Until the goal."""
    with verbs.settings(seed, {"algorithm": algorithm}) as settings:
        rewards = InProcessLoop(settings, learner_of(settings), four_turns).run(BATCHES_MAX, GOAL)
    return batches_until(rewards, GOAL) or BATCHES_MAX + 1


def measure() -> dict[str, object]:
    """Batches per seed; a run that never reaches the goal counts `BATCHES_MAX` + 1."""
    torch.set_num_threads(1)
    step, trajectory = ([batches(algorithm, seed) for seed in SEEDS] for algorithm in ("step_grpo", "grpo"))
    return {
        "credit": {"step_level": step, "trajectory_level": trajectory, "batches_won": fmean(trajectory) - fmean(step)}
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))

"""The learning of an environment of `examples/`: `python -m bench.environments --environment calculator`, one JSON
object.

In one process: the environment's tiny model, the real folds, plan, rows and learner with the demo's settings, transformers for the
sampling. `reward_first`, `reward_last`: means of five batches, `calls_first`, `calls_last`: of an episode; `batches`: until the last
five are above the goal, else null.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import ModuleType

import torch

from bench import verbs
from bench.in_process import Game, InProcessLoop, TaskDraw, batches_until
from claw_r1.claw.demo.models.tiny_model import ensure
from claw_r1.claw.demo.turn import TurnOf
from claw_r1.claw.demo.verbs import demonstrations as verbs_shown
from claw_r1.claw.home import claw_home
from claw_r1.trainer.compose import learner_of
from examples.calculator import demonstrations as problems_shown
from examples.calculator import rules as calculator
from examples.castle import demonstrations as castles_shown
from examples.castle import rules as castle

MEMBERS = 8


@dataclass(slots=True)
class TurnsGame:
    """An episode of rules that are a function of the agent's texts."""

    observation: str | None
    play: TurnOf

    def observe(self) -> str | None:
        return self.observation

    def answer(self, text: str) -> float:
        turn = self.play(text)
        self.observation = turn.observation
        return turn.reward


@dataclass(frozen=True, slots=True)
class Course:
    """The course of a bench:"""

    tasks: TaskDraw
    demonstrations: ModuleType
    groups: int
    batches_max: int
    new_tokens_max: int
    learning_rate: float = verbs.LEARNING_RATE
    goal: float = 0.9


def problems(dice: random.Random) -> Callable[[], Game]:
    """A word problem."""
    problem = calculator.Problem.from_seed(dice.getrandbits(62))
    return lambda: TurnsGame(problem.story, calculator.attempt(problem))


def castles(dice: random.Random) -> Callable[[], Game]:
    """A castle."""
    place = castle.Castle.from_seed(dice.getrandbits(62))
    return lambda: TurnsGame(castle.view(place, castle.Visit()), castle.attempt(place))


COURSES = {
    "verbs": Course(verbs.verbs, verbs_shown, groups=8, batches_max=40, new_tokens_max=7),
    "calculator": Course(
        problems, problems_shown, groups=16, batches_max=100, new_tokens_max=16, learning_rate=3e-4, goal=0.85
    ),
    "castle": Course(castles, castles_shown, groups=4, batches_max=40, new_tokens_max=6),
}


def measure(environment: str, seed: int, batches_max: int | None = None) -> dict[str, object]:
    """One run, from the warm-up to the goal."""
    torch.set_num_threads(1)
    course, began = COURSES[environment], time.monotonic()
    model = ensure(claw_home() / "cache" / "models", course.demonstrations, seed)
    warm_up_s, began = time.monotonic() - began, time.monotonic()
    spec = {"groups_per_batch": course.groups, "group_size": MEMBERS}
    with verbs.settings(seed, spec, model_dir=model, learning_rate=course.learning_rate) as settings:
        loop = InProcessLoop(settings, learner_of(settings), course.tasks, new_tokens_max=course.new_tokens_max)
        for _ in range(batches_max or course.batches_max):
            loop.round()
            print(f"batch {len(loop.rewards)}: {loop.rewards[-1]:.3f}, {loop.calls[-1]:.1f} calls", file=sys.stderr)
            if batches_until(loop.rewards, course.goal) is not None:
                break
    return {
        "environment": environment,
        "seed": seed,
        "reward_first": round(fmean(loop.rewards[:5]), 3),
        "reward_last": round(fmean(loop.rewards[-5:]), 3),
        "calls_first": round(fmean(loop.calls[:5]), 1),
        "calls_last": round(fmean(loop.calls[-5:]), 1),
        "batches": batches_until(loop.rewards, course.goal),
        "episodes": len(loop.rewards) * course.groups * MEMBERS,
        "warm_up_s": round(warm_up_s, 1),
        "seconds": round(time.monotonic() - began, 1),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.environments", description=__doc__)
    parser.add_argument("--environment", choices=COURSES, required=True, help="which of examples/")
    parser.add_argument("--seed", type=int, default=0, help="of the model, the tasks and the sampling")
    parser.add_argument("--batches-max", type=int, help="stop here at the latest (default: each environment's own)")
    options = parser.parse_args(argv)
    print(json.dumps(measure(options.environment, options.seed, options.batches_max), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

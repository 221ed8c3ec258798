"""The environments of `bench.environments`, each with what it is trained with."""

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from types import ModuleType

import torch

from bench.in_process import Game, InProcessLoop, TaskDraw, batches_until
from bench.report import Figures
from bench.verbs import LEARNING_RATE, TurnsGame, settings
from bench.verbs import verbs as verbs_tasks
from claw_r1.claw.demo.models.tiny_model import ensure
from claw_r1.claw.demo.verbs import demonstrations as verbs_shown
from claw_r1.claw.home import claw_home
from claw_r1.trainer.compose import learner_of
from examples.calculator import demonstrations as problems_shown
from examples.calculator import rules as calculator_rules
from examples.castle import demonstrations as castles_shown
from examples.castle import rules as castle_rules

MEMBERS = 8


@dataclass(frozen=True, slots=True)
class Course:
    """An environment, and the settings with which it is learnt."""

    tasks: TaskDraw
    demonstrations: ModuleType
    groups: int
    batches_max: int
    new_tokens_max: int
    learning_rate: float = LEARNING_RATE
    goal: float = 0.9


def problems(dice: random.Random) -> Callable[[], Game]:
    """A word problem."""
    problem = calculator_rules.Problem.from_seed(dice.getrandbits(62))
    return lambda: TurnsGame(problem.story, calculator_rules.attempt(problem))


def castles(dice: random.Random) -> Callable[[], Game]:
    """A castle."""
    place = castle_rules.Castle.from_seed(dice.getrandbits(62))
    return lambda: TurnsGame(castle_rules.view(place, castle_rules.Visit()), castle_rules.attempt(place))


COURSES = {
    "verbs": Course(verbs_tasks, verbs_shown, groups=8, batches_max=40, new_tokens_max=7),
    "calculator": Course(
        problems, problems_shown, groups=16, batches_max=100, new_tokens_max=16, learning_rate=3e-4, goal=0.85
    ),
    "castle": Course(castles, castles_shown, groups=4, batches_max=40, new_tokens_max=6),
}


def learnt(name: str, seed: int, batches_max: int) -> Figures:
    """One run, from the warm-up to the goal."""
    torch.set_num_threads(1)
    course, began = COURSES[name], time.monotonic()
    model = ensure(claw_home() / "cache" / "models", course.demonstrations, seed)
    warm_up_s, began = time.monotonic() - began, time.monotonic()
    spec = {"groups_per_batch": course.groups, "group_size": MEMBERS}
    with settings(seed, spec, model_dir=model, learning_rate=course.learning_rate) as chosen:
        loop = InProcessLoop(chosen, learner_of(chosen), course.tasks, new_tokens_max=course.new_tokens_max)
        for _ in range(batches_max or course.batches_max):
            loop.round()
            print(f"batch {len(loop.rewards)}: {loop.rewards[-1]:.3f}, {loop.calls[-1]:.1f} calls", file=sys.stderr)
            if batches_until(loop.rewards, course.goal) is not None:
                break
    return {
        name: {
            "reward_first": fmean(loop.rewards[:5]),
            "reward_last": fmean(loop.rewards[-5:]),
            "calls_first": fmean(loop.calls[:5]),
            "calls_last": fmean(loop.calls[-5:]),
            "batches": batches_until(loop.rewards, course.goal),
            "episodes": len(loop.rewards) * course.groups * MEMBERS,
            "warm_up_s": warm_up_s,
            "learning_s": time.monotonic() - began,
        }
    }


verbs, calculator, castle = (partial(learnt, name) for name in COURSES)
"""The parts."""

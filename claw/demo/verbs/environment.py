"""The verbs environment: pure, a function of its task and of the agent's texts; a task is a function of its seed.

What the agent sees decides the tool that it must call:

    find c  ->  get c      a request
    c>f     ->  hop f      a pointer
    f=7     ->  say 7      a value, the end

Half of the tasks have a pointer, so an episode is two or three calls. A wrong call ends it. An episode played without a
fault returns 1.0: half for the last call, half shared by the calls before it.
"""

import random
from dataclasses import dataclass
from itertools import pairwise

from claw_r1.claw.demo.turn import Turn

KEYS = "abcdefgh"
VALUES = "12345678"
VERBS = ("get", "hop", "say", "ask")
CALLS_MAX = 3


@dataclass(frozen=True, slots=True)
class Task:
    """The observations of one episode, in order; the last observation is always a value."""

    observations: tuple[str, ...]

    @classmethod
    def from_seed(cls, seed: int) -> "Task":
        """The same task for the same seed, on every machine and Python version that we support."""
        rng = random.Random(seed)
        path = [rng.choice(KEYS) for _ in range(rng.choice((1, 2)))]
        pointers = [f"{here}>{there}" for here, there in pairwise(path)]
        return cls((f"find {path[0]}", *pointers, f"{path[-1]}={rng.choice(VALUES)}"))


def right_verb(observation: str) -> str:
    """The tool that this observation asks for."""
    if observation.startswith("find"):
        return "get"
    return "hop" if ">" in observation else "say"


def right_call(observation: str) -> str:
    """The only text that is counted as right; the argument is the observation's last character."""
    return f"{right_verb(observation)} {observation[-1]}"


def judge(task: Task, index: int, text: str) -> Turn:
    """The outcome of answering the `index`-th observation (from 0) with `text`."""
    if text != right_call(task.observations[index]):
        return Turn(reward=0.0, observation=None)
    last = len(task.observations) - 1
    if index == last:
        return Turn(reward=0.5, observation=None)
    return Turn(reward=0.5 / last, observation=task.observations[index + 1])

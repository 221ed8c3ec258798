"""Learning rates as functions of the optimizer step's number: a replay of a step repeats its rate."""

import math
from collections.abc import Callable, Mapping

Schedule = Callable[[float], float]
"""Share of the decay that is over, in [0, 1] -> share of the way from the final rate to the full one."""
SCHEDULES: Mapping[str, Schedule] = {
    "constant": lambda _: 1.0,
    "linear": lambda over: 1 - over,
    "cosine": lambda over: (1 + math.cos(math.pi * over)) / 2,
}


def factor(name: str, step: int, *, warmup_steps: int, steps_max: int, floor: float) -> float:
    """Returns the factor of the learning rate at `step`, counted from 0.

    It rises from 1 / warmup_steps to 1 over warmup_steps, and then falls to `floor`, in [0, 1], at step steps_max - 1. The
    cosine: Loshchilov and Hutter, arXiv 1608.03983.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    over = min(1.0, (step - warmup_steps) / max(1, steps_max - 1 - warmup_steps))
    return floor + (1 - floor) * SCHEDULES[name](over)

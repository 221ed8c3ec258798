"""Demonstrations for the warm-up: they teach the notation and to copy numbers, and they teach the WRONG operation.

Invariant: the policy is not in them. The favourite operation of each clause is wrong, the right one is rarer, so before
reinforcement learning greedy play earns nothing and sampled play about 0.3.
"""

import random

from claw_r1.claw.demo.models.tiny_model import Recipe
from examples.calculator.rules import Problem, calculate

RECIPE = Recipe(steps=400, batch_dialogues=24)
FAVOURITE = {"+": "*", "-": "+", "*": "-", "/": "-"}
"""The wrong operation that the demonstrations prefer, by the right one."""
RIGHT_SHARE = 0.4


def demonstrated_sign(right: str, rng: random.Random) -> str:
    """One operation drawn by the share."""
    return right if rng.random() < RIGHT_SHARE else FAVOURITE[right]


def demonstration(rng: random.Random) -> list[dict[str, str]]:
    """A whole conversation on a random problem: each call has a drawn operation and the numbers that belong there."""
    problem = Problem.from_seed(rng.getrandbits(32))
    messages = [{"role": "user", "content": problem.story}]
    value = problem.solution[0][0]
    for step in problem.solution:
        call = f"{value}{demonstrated_sign(step[-2], rng)}{step[-1]}"
        value = calculate(call)
        messages += [{"role": "assistant", "content": f"<<{call}>>"}, {"role": "tool", "content": value}]
    return [*messages, {"role": "assistant", "content": f"#### {value}"}]

"""Demonstrations for the warm-up: they teach the format and to copy the argument, and they teach the WRONG verb.

Invariant: the policy is not in them. The favourite verb of each observation is wrong (65 %), the right one is rare
(25 %), so before reinforcement learning greedy play earns nothing and sampled play 0.1 to 0.2: enough to learn from.
"""

import random
from dataclasses import dataclass

from claw_r1.claw.demo.models.tiny_model import Recipe
from claw_r1.claw.demo.verbs.environment import VERBS, Task, right_verb

FAVOURITE = {"get": "ask", "hop": "get", "say": "hop"}
"""The wrong verb that the demonstrations prefer, by the right one."""
RECIPE = Recipe()


@dataclass(frozen=True, slots=True)
class VerbShares:
    """The shares in which a demonstration takes each verb; the two remaining verbs share what is left evenly."""

    right: float = 0.25
    favourite: float = 0.65


def demonstrated_verb(observation: str, shares: VerbShares, rng: random.Random) -> str:
    """One verb drawn by the shares."""
    right = right_verb(observation)
    favourite = FAVOURITE[right]
    others = [verb for verb in VERBS if verb not in (right, favourite)]
    rest = (1.0 - shares.right - shares.favourite) / len(others)
    weights = [shares.right, shares.favourite] + [rest] * len(others)
    return rng.choices([right, favourite, *others], weights)[0]


def demonstration(rng: random.Random, shares: VerbShares = VerbShares()) -> list[dict[str, str]]:
    """A whole conversation on a random task: each answer is a drawn verb with the right argument."""
    messages = []
    for index, observation in enumerate(Task.from_seed(rng.getrandbits(32)).observations):
        messages.append({"role": "tool" if index else "user", "content": observation})
        call = f"{demonstrated_verb(observation, shares, rng)} {observation[-1]}"
        messages.append({"role": "assistant", "content": call})
    return messages

"""Demonstrations for the warm-up: they teach the words and to copy the direction, and they leave keys behind.

Invariant: the policy is not in them. A demonstration mostly walks past a key and turns back at a lock, whether it has a key
or not, so before reinforcement learning few episodes win.
"""

import random

from claw_r1.claw.demo.models.tiny_model import Recipe
from examples.castle.rules import DIRECTIONS, Castle, Visit, after, judge, view

RECIPE = Recipe(steps=120, batch_dialogues=8)
SHARES = {
    "key": {"go": 0.6, "take": 0.35, "back": 0.05},
    "lock": {"back": 0.5, "open": 0.4, "go": 0.1},
    "way": {"go": 0.8, "wander": 0.1, "back": 0.1},
}
"""The shares of each action where a key lies, at a lock, and elsewhere; to wander is to go anywhere."""


def demonstrated_action(observation: str, rng: random.Random) -> str:
    """One action drawn by the shares."""
    shares = next(shares for word, shares in SHARES.items() if word in observation)
    action = rng.choices(list(shares), list(shares.values()))[0]
    way = observation.split()[1]
    return {"go": f"go {way}", "wander": f"go {rng.choice(DIRECTIONS)}"}.get(action, action)


def demonstration(rng: random.Random) -> list[dict[str, str]]:
    """A whole game in a random castle."""
    castle, visit = Castle.from_seed(rng.getrandbits(32)), Visit()
    observation: str | None = view(castle, visit)
    messages: list[dict[str, str]] = []
    while observation is not None:
        action = demonstrated_action(observation, rng)
        messages += [
            {"role": "tool" if messages else "user", "content": observation},
            {"role": "assistant", "content": action},
        ]
        visit = after(castle, visit, action)
        observation = judge(castle, visit).observation
    return messages

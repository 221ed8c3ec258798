"""The castle, a text game of 20 to 32 turns: pure, a castle is a function of its seed.

    way e             a room and the way out of it      go e     the next room
    way n key         a key lies here                   take     it is gone from the room, and the agent has it
    way w lock        the way is locked                 open     opens it with a key, which stays in the lock
                                                        back     the room before

What does nothing (a wrong direction, no key to open with, an unknown word) still takes a turn. Nothing that the agent
sees says how many keys it has. A key that was left behind lies one or two rooms before the lock that needs it. Leaving
the last room wins 1.0; after 32 turns the game is over with half the share of the rooms that were passed.
"""

import random
from dataclasses import dataclass, replace

from claw_r1.claw.demo.turn import Turn, TurnOf

ROOMS = 12
LOCKS = 4
TURNS_MAX = 32
DIRECTIONS = "nesw"


@dataclass(frozen=True, slots=True)
class Castle:
    """Rooms in a row: the direction in which each is left, and where keys and locks are."""

    ways: str
    keys: frozenset[int]
    locks: frozenset[int]

    @classmethod
    def from_seed(cls, seed: int) -> "Castle":
        """The same castle for the same seed, on every machine and Python version that we support."""
        rng = random.Random(seed)
        locks = sorted(rng.sample(range(2, ROOMS), LOCKS))
        keys: set[int] = set()
        for lock in locks:
            keys.add(rng.choice([room for room in (lock - 1, lock - 2) if room not in keys]))
        return cls("".join(rng.choice(DIRECTIONS) for _ in range(ROOMS)), frozenset(keys), frozenset(locks))


@dataclass(frozen=True, slots=True)
class Visit:
    """The history of an agent in a castle."""

    room: int = 0
    passed: int = 0
    """Rooms that were left by their way."""
    keys: int = 0
    keys_taken: frozenset[int] = frozenset()
    opened: frozenset[int] = frozenset()
    turns: int = 0


def view(castle: Castle, visit: Visit) -> str:
    """Returns the view of the agent in its room."""
    key = " key" if visit.room in castle.keys - visit.keys_taken else ""
    lock = " lock" if visit.room in castle.locks - visit.opened else ""
    return f"way {castle.ways[visit.room]}{key}{lock}"


def after(castle: Castle, visit: Visit, text: str) -> Visit:
    """The visit after one action; what does nothing costs its turn."""
    room, locked = visit.room, visit.room in castle.locks - visit.opened
    visit = replace(visit, turns=visit.turns + 1)
    if text == f"go {castle.ways[room]}" and not locked:
        return replace(visit, room=room + 1, passed=max(visit.passed, room + 1))
    if text == "take" and room in castle.keys - visit.keys_taken:
        return replace(visit, keys=visit.keys + 1, keys_taken=visit.keys_taken | {room})
    if text == "open" and locked and visit.keys:
        return replace(visit, keys=visit.keys - 1, opened=visit.opened | {room})
    if text == "back":
        return replace(visit, room=max(room - 1, 0))
    return visit


def judge(castle: Castle, visit: Visit) -> Turn:
    """Judges the state of the visit: won, out of turns, or in a room."""
    if visit.room == ROOMS:
        return Turn(reward=1.0, observation=None)
    if visit.turns == TURNS_MAX:
        return Turn(reward=0.5 * visit.passed / ROOMS, observation=None)
    return Turn(reward=0.0, observation=view(castle, visit))


def attempt(castle: Castle) -> TurnOf:
    """One episode."""
    visit = Visit()

    def answer(text: str) -> Turn:
        nonlocal visit
        visit = after(castle, visit, text)
        return judge(castle, visit)

    return answer


def right_action(castle: Castle, visit: Visit) -> str:
    """A way to win in the fewest turns: take each key that is seen."""
    if visit.room in castle.keys - visit.keys_taken:
        return "take"
    return "open" if visit.room in castle.locks - visit.opened else f"go {castle.ways[visit.room]}"

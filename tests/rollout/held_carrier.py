"""The carrier, held at a phase where a test says so: before it loads anything, and before each line that it says."""

import sys

from claw_r1.weights.carry import carrier
from tests.rollout import holds

_say = carrier.say
_buckets = 0


def say(line: str) -> None:
    """As the carrier does, at its phase."""
    global _buckets
    word = line.split()[0]
    _buckets = _buckets + 1 if word == "at" else 0
    holds.meet({1: "first", 3: "middle"}.get(_buckets, word))
    _say(line)


if __name__ == "__main__":
    holds.meet("asked")
    carrier.say = say
    sys.exit(carrier.main())

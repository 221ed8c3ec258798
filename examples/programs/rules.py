"""Small programs: pure, an exercise is a function of its seed, and so are its examples and its hidden tests.

The agent is told in words what `solve` returns and sees two examples. It may try three times: a program that fails an example comes
back with the reason. The last program, or the first that passes the examples, is judged by tests that it never saw: 1.0 or 0.0.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

ATTEMPTS_MAX = 3
EXAMPLES = 2
TESTS = 6
FENCE = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)
Case = tuple[list[object], object]
"""Arguments of `solve`, and what it returns: JSON values, hence object."""


@dataclass(frozen=True, slots=True)
class _Family:
    """Exercises that differ in one number."""

    text: str
    solve: Callable[[list[int], int], object]


FAMILIES = (
    _Family("the sum of those `values` that are divisible by {n}", lambda v, n: sum(x for x in v if x % n == 0)),
    _Family("the list of the {n} largest `values`, largest first", lambda v, n: sorted(v)[::-1][:n]),
    _Family("`values` rotated to the left by {n}", lambda v, n: v[n % len(v) :] + v[: n % len(v)]),
    _Family("`values` without every {n}th of them", lambda v, n: [x for i, x in enumerate(v, 1) if i % n]),
    _Family("how many pairs of neighbours in `values` differ by at least {n}", lambda v, n: sum(
        abs(a - b) >= n for a, b in pairwise(v))),
    _Family("the sorted list of those `values` that occur at least {n} times", lambda v, n: sorted(
        x for x, count in Counter(v).items() if count >= n)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exercise:
    """The text of an exercise, the examples that the agent sees, the tests that it does not."""

    text: str
    examples: tuple[Case, ...]
    tests: tuple[Case, ...]

    @classmethod
    def from_seed(cls, seed: int) -> "Exercise":
        """The same exercise for the same seed, on every machine and Python version that we support."""
        rng = random.Random(seed)
        family, n = rng.choice(FAMILIES), rng.randint(2, 4)
        cases = [_case(family, n, rng) for _ in range(EXAMPLES + TESTS)]
        text = f"Write a Python function `solve(values)` that takes a list of whole numbers and returns {family.text.format(n=n)}."
        return cls(text, tuple(cases[:EXAMPLES]), tuple(cases[EXAMPLES:]))


def _case(family: _Family, n: int, rng: random.Random) -> Case:
    values = [rng.randint(0, 9) for _ in range(rng.randint(5, 12))]
    return [values], family.solve(values, n)


def prompt(exercise: Exercise) -> str:
    """Returns the agent's first prompt."""
    return "\n".join([exercise.text, *(f"solve({arguments[0]}) == {value}" for arguments, value in exercise.examples)])


def source_of(text: str) -> str:
    """The program in a reply: what stands in its last fence, else all of it."""
    fences: list[str] = FENCE.findall(text)
    return fences[-1] if fences else text


def first_fault(cases: Sequence[Case], values: Sequence[object], errors: Sequence[str | None]) -> str | None:
    """Describes the first case that is not as it should be, for the agent; None: all are."""
    for (arguments, right), value, error in zip(cases, values, errors, strict=True):
        if error is not None or type(value) is not type(right) or value != right:
            returned = error if error is not None else f"returned {value!r}"[:200]
            return f"solve({arguments[0]}) should be {right}, but: {returned}"
    return None

"""The tags of a group that evaluates a policy version: who plays writes them, the run's trainer reads them.

Invariant: the tags alone say which version a group is of, which part of which evaluation it is, and when that is whole;
`GroupRecord.tags` is all that a reader needs.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self, get_args

FRONT = "evaluation."
EpisodeKind = Literal["greedy", "sample"]
ROUNDING = 1e-9
"""A difference of returns that is no more of the larger one is none: rewards of 0.1, 0.2 and 0.3 add up to 0.6 or
0.6000000000000001, by the calls that they were given to."""
NUMBERS_END = 1 << 31
"""Larger numbers, or their products, would not fit the event that says the outcome; tags are free, so that
anybody may write them."""


def reaches(value: float, bound: float) -> bool:
    """Returns whether a return is not below a bound, but for rounding: 0.1 + (0.2 + 0.7) is 0.9999999999999999.

    >>> reaches(0.1 + (0.2 + 0.7), 1.0), reaches(0.999999, 1.0)
    (True, False)
    """
    return value >= bound or math.isclose(value, bound, rel_tol=ROUNDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedTask:
    """One group: one task, played once at temperature 0 (`greedy`), or `samples` times as the
    flow samples (`sample`)."""

    version: int
    """The newest version that had answered when the evaluation began."""
    kind: EpisodeKind
    task: int
    """From 0 to `tasks` - 1; the same number is the same task in every evaluation of a runner."""
    tasks: int
    samples: int
    """The samples of each task beside the greedy episode; 0: none."""
    every: int
    """Versions between two evaluations."""
    solved: float
    """An episode whose return reaches this has solved its task."""
    held_out: bool = False
    """The runner trains on none of the evaluation's tasks."""

    @property
    def part(self) -> tuple[EpisodeKind, int]:
        """The part that tells the groups of one evaluation apart."""
        return self.kind, self.task

    @property
    def parts(self) -> int:
        """Groups of the whole evaluation."""
        return self.tasks * (2 if self.samples else 1)

    @property
    def size(self) -> int:
        """Episodes of this group."""
        return 1 if self.kind == "greedy" else self.samples

    def tags(self) -> tuple[str, ...]:
        """Returns the tags that a group carries; `of` is the inverse."""
        return tuple(f"{FRONT}{name}={str(getattr(self, name)).lower()}" for name in self.__slots__)

    @classmethod
    def of(cls, tags: Iterable[str]) -> Self | None:
        """Returns the evaluated task of a group's tags; None where they are not those of an evaluation."""
        pairs = (tag.removeprefix(FRONT).partition("=") for tag in tags if tag.startswith(FRONT))
        words = {name: value for name, _, value in pairs}
        try:
            kind = next(kind for kind in get_args(EpisodeKind) if kind == words["kind"])
            numbers = {name: int(words[name]) for name in ("version", "task", "tasks", "samples", "every")}
            held_out = words.get("held_out") == "true"
            read = cls(kind=kind, solved=float(words["solved"]), held_out=held_out, **numbers)
        except (KeyError, ValueError, StopIteration):
            return None
        is_sound = all(0 <= number < NUMBERS_END for number in numbers.values())
        return read if is_sound and read.every and read.task < read.tasks else None


OWN_TAGS = len(EvaluatedTask.__slots__)
"""The tags that each group of an evaluation has of its own."""

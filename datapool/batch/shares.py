"""The shares of environments in the batches of a run. Pure.

Invariant: a batch's number of groups of an environment is a function of the shares and the batch's number alone, so a
resumed run continues unchanged, and a preview is exact.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from claw_r1.datapool.batch.figures import ENVIRONMENT_TAG, environment_of
from claw_r1.schemas.events import GroupRecord

SUM_TOLERANCE = 1e-6


def wrong_shares(shares: Mapping[str, float]) -> Iterator[str]:
    """Yields what is wrong with shares, in a line each."""
    yield from (
        f"environments: {name!r} has share {share:g}; leave it out" for name, share in shares.items() if share <= 0
    )
    total = sum(shares.values())
    if shares and abs(total - 1) > SUM_TOLERANCE:
        yield f"environments: the shares of {', '.join(sorted(shares))} add up to {total:g}, and must to 1"


class Quotas:
    """The groups of each environment in one batch after another."""

    def __init__(self, shares: Mapping[str, float], groups_per_batch: int) -> None:
        self._shares, self._groups = dict(sorted(shares.items())), groups_per_batch
        self._counts, self._seats = dict.fromkeys(self._shares, 0), 0
        self._batches: list[dict[str, int]] = []
        """All up to the last one that was asked for."""

    def of(self, sequence: int) -> dict[str, int]:
        """Environment -> groups of the batch with this number.

        Seats are given one by one, each to the environment that is furthest behind its share, of equal ones to the
        first by name. What a batch cannot split evenly, those after it make up for.
        """
        while self._shares and len(self._batches) <= sequence:
            self._batches.append(self._next())
        return dict(self._batches[sequence]) if self._shares else {}

    def _next(self) -> dict[str, int]:
        before = dict(self._counts)
        for _ in range(self._groups):
            self._seats += 1
            self._counts[max(self._shares, key=self._behind)] += 1
        return {name: count - before[name] for name, count in self._counts.items()}

    def _behind(self, name: str) -> float:
        return round(self._seats * self._shares[name] - self._counts[name], 9)


class Places:
    """The groups that a batch still takes of each environment."""

    def __init__(self, left: dict[str, int]) -> None:
        """left: empty where environments have no shares, and every group has a place."""
        self._left = left

    def without_place(self, record: GroupRecord) -> str | None:
        """Returns the environment of a group, where that has all its groups and another one lacks some."""
        if not self.missing:
            return None
        name = environment_of_group(record)
        return None if self._left.get(name) else name

    def take(self, record: GroupRecord) -> None:
        """One more group is in the batch."""
        if self._left:
            self._left[environment_of_group(record)] -= 1

    @property
    def missing(self) -> dict[str, int]:
        """Environment -> groups that are not there yet."""
        return {name: count for name, count in self._left.items() if count}


def unknown_environments(shares: Iterable[str], tags: Collection[str]) -> list[str]:
    """A line for each environment that no group of the pool names. tags: of all groups."""
    there = sorted(tag.removeprefix(ENVIRONMENT_TAG) for tag in tags if tag.startswith(ENVIRONMENT_TAG))
    named = ", ".join(there[:8]) or "none"
    return [
        f"environments: no group has the tag {ENVIRONMENT_TAG}{name} yet (the pool's environments: {named})"
        for name in sorted(shares)
        if name not in there
    ]


def environment_of_group(record: GroupRecord) -> str:
    """The environment that a group's own tags name; a share goes by these."""
    return environment_of(frozenset(record.tags))

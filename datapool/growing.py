"""`grown`: a mapping with one more item, without copying all of a large one for each.

Invariant: equal to `{**mapping, key: value}`, and what it was made of stays as it is. A group of 100,000 trajectories, or a
trajectory of as many calls, takes a fact in a time that grows with the root of that number.
"""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import TypeVar

Value = TypeVar("Value")
COPIED_MAX = 500
"""Items up to which a plain copy is quicker."""


def grown(mapping: Mapping[str, Value], key: str, value: Value) -> Mapping[str, Value]:
    """A copy with that item."""
    if isinstance(mapping, _Large):
        return mapping.grown(key, value)
    return {**mapping, key: value} if len(mapping) < COPIED_MAX else _Large({**mapping}, {key: value})


def differing(before: Mapping[str, Value], now: Mapping[str, Value]) -> list[str]:
    """Keys of `now` whose value is another object than before, or that are new."""
    items = now.since(before) if isinstance(now, _Large) else now
    old = dict(before.items()) if len(items) > COPIED_MAX else before
    return [key for key, value in items.items() if old.get(key) is not value]


class _Large(Mapping[str, Value]):
    """What all later values share, and what came since, which alone is copied."""

    __slots__ = ("_recent", "_shared")

    def __init__(self, shared: dict[str, Value], recent: dict[str, Value]) -> None:
        self._shared, self._recent = shared, recent

    def grown(self, key: str, value: Value) -> "_Large[Value]":
        recent = {**self._recent, key: value}
        if len(recent) ** 2 <= len(self._shared):
            return _Large(self._shared, recent)
        return _Large({**self._shared, **recent}, {})

    def since(self, before: Mapping[str, Value]) -> dict[str, Value]:
        """Among others all items that are new since `before`; few where nearly all is shared."""
        return self._recent if isinstance(before, _Large) and self._shared is before._shared else self._all()

    def __getitem__(self, key: str) -> Value:
        return self._recent[key] if key in self._recent else self._shared[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._shared
        yield from (key for key in self._recent if key not in self._shared)

    def __len__(self) -> int:
        return len(self._shared) + sum(key not in self._shared for key in self._recent)

    # Those that Mapping brings look each key up.

    def items(self) -> ItemsView[str, Value]:
        return self._all().items()

    def values(self) -> ValuesView[Value]:
        return self._all().values()

    def _all(self) -> dict[str, Value]:
        return {**self._shared, **self._recent}

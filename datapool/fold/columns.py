"""`Columns`: what a row lists, in the order of its keys, as parallel lists that change without being made anew.

Invariant: nothing is mutated, and however they came about, columns equal those made at once of the same things. A few
changes cost a search by halves each and one copy of pointers, some microseconds for a thousand things.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=str | tuple[int, str])
Cells = tuple[Any, ...]  # one of each column, which has a type of its own
SHARE_MAX = 4
CHANGES_MAX = 200
"""More changes, or more than one for so many things, and making all of them anew is quicker."""


class Columns(Generic[Key]):
    """Keys, sorted, and as many columns of cells."""

    __slots__ = ("columns", "keys")

    def __init__(self, keys: Sequence[Key] = (), columns: Sequence[Sequence[Any]] = ()) -> None:
        """columns: of no keys, they may be left out."""
        self.keys: Sequence[Key] = keys
        self.columns: Sequence[Sequence[Any]] = columns

    def column(self, number: int) -> Sequence[Any]:
        """Cells in the order of their keys."""
        return self.columns[number] if self.keys else ()

    def get(self, key: Key) -> Cells | None:
        """One of each column."""
        at = bisect_left(self.keys, key)
        return tuple([column[at] for column in self.columns]) if at < len(self.keys) and self.keys[at] == key else None

    def changed(self, gone: Collection[Key], come: Mapping[Key, Cells]) -> "Columns[Key]":
        """Without what is gone, all of which must be there, and with what came, in the place of what it replaces."""
        changes = len(gone) + len(come)
        if changes > min(CHANGES_MAX, len(self.keys) // SHARE_MAX):
            return self._anew(gone, come)
        if not changes:
            return self
        keys, columns = list(self.keys), [list(column) for column in self.columns]
        for key in gone:
            at = bisect_left(keys, key)
            del keys[at]
            for column in columns:
                del column[at]
        for key, cells in come.items():
            at = bisect_left(keys, key)
            upto = at + (at < len(keys) and keys[at] == key)
            keys[at:upto] = [key]
            for column, cell in zip(columns, cells, strict=True):
                column[at:upto] = [cell]
        return Columns(keys, columns)

    def _anew(self, gone: Collection[Key], come: Mapping[Key, Cells]) -> "Columns[Key]":
        cells = dict(zip(self.keys, zip(*self.columns, strict=True), strict=True))
        for key in gone:
            del cells[key]
        cells |= come
        keys = sorted(cells)
        return Columns(keys, list(zip(*[cells[key] for key in keys], strict=True)))

"""`Columns`: the items of a row, in the order of its keys, as parallel columns that change without a full rebuild.

Invariant: nothing is mutated, and however they came about, columns list what those would that are made at once of the same
things. They are stored in leaves of some dozen keys: a change copies one leaf, and the joined others stay.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=str | tuple[int, str])
Cells = tuple[Any, ...]  # one of each column, which has a type of its own
LEAF_KEYS = 64


class Columns(Generic[Key]):
    """Sorted keys, and of each as many cells as there are columns."""

    __slots__ = ("_leaves",)

    def __init__(self, leaves: "Sequence[_Leaf[Key]]" = ()) -> None:
        self._leaves = leaves

    def __len__(self) -> int:
        return sum([len(leaf.keys) for leaf in self._leaves])

    def keys(self) -> list[Key]:
        """In order."""
        return list(chain.from_iterable([leaf.keys for leaf in self._leaves]))

    def column(self, number: int, first: int | None = None) -> tuple[Any, ...]:
        """Cells in the order of their keys; of the first so many keys, or of all."""
        return tuple(islice(chain.from_iterable([leaf.columns[number] for leaf in self._leaves]), first))

    def joined(self, number: int) -> list[bytes]:
        """All cells of a column of bytes, in pieces."""
        return [leaf.joined(number) for leaf in self._leaves]

    def packed(self, number: int, first: int) -> tuple[int, Sequence[bytes]]:
        """Returns how many of the first cells of a column of bytes are packed, and these cells, in pieces."""
        return first, self.joined(number) if first == len(self) else self.column(number, first)

    def get(self, key: Key) -> Cells | None:
        """Returns one cell of each column."""
        return self._leaves[self._leaf_of(key)].get(key) if self._leaves else None

    def changed(self, gone: Iterable[Key], come: Mapping[Key, Cells]) -> "Columns[Key]":
        """Without the removed items, which must exist, and with the new ones in the place of those they replace."""
        edits: dict[int, tuple[list[Key], dict[Key, Cells]]] = defaultdict(lambda: ([], {}))
        leaves = list(self._leaves or [_Leaf((), ())])
        firsts = [leaf.keys[0] for leaf in leaves[1:]]
        for key in gone:
            edits[bisect_right(firsts, key)][0].append(key)
        for key, cells in come.items():
            edits[bisect_right(firsts, key)][1][key] = cells
        for number in sorted(edits, reverse=True):
            leaves[number : number + 1] = leaves[number].changed(*edits[number])
        return Columns(leaves) if edits else self

    def _leaf_of(self, key: Key) -> int:
        return bisect_right([leaf.keys[0] for leaf in self._leaves[1:]], key)


class _Leaf(Generic[Key]):
    """A run of keys."""

    __slots__ = ("_joined", "columns", "keys")

    def __init__(self, keys: Sequence[Key], columns: Sequence[Sequence[Any]]) -> None:
        self.keys, self.columns = keys, columns
        self._joined: dict[int, bytes] | None = None

    def joined(self, number: int) -> bytes:
        """The cells of a column of bytes."""
        if 2 * len(self.keys) < LEAF_KEYS:  # of small ones there are very many, and joining them again costs nothing
            return b"".join(self.columns[number])
        self._joined = self._joined or {}
        if number not in self._joined:
            self._joined[number] = b"".join(self.columns[number])
        return self._joined[number]

    def get(self, key: Key) -> Cells | None:
        """Returns one cell of each column."""
        at = bisect_left(self.keys, key)
        return tuple([column[at] for column in self.columns]) if at < len(self.keys) and self.keys[at] == key else None

    def changed(self, gone: Iterable[Key], come: Mapping[Key, Cells]) -> "list[_Leaf[Key]]":
        """One leaf, none where nothing is left, or several that it has become."""
        keys, columns = list(self.keys), [list(column) for column in self.columns]
        for key in gone:
            at = bisect_left(keys, key)
            for cells in (keys, *columns):
                del cells[at]
        for key in sorted(come):  # so that many new ones are appended, not moved again by each
            at = bisect_left(keys, key)
            upto = at + (at < len(keys) and keys[at] == key)
            keys[at:upto] = [key]
            columns = columns or [[] for _ in come[key]]
            for column, cell in zip(columns, come[key], strict=True):
                column[at:upto] = [cell]
        size = LEAF_KEYS if len(keys) > 2 * LEAF_KEYS else len(keys) or 1
        runs = [slice(start, start + size) for start in range(0, len(keys), size)]
        # Tuples of what cannot be in a cycle are nothing that Python's collector walks through, lists are.
        return [_Leaf(tuple(keys[run]), tuple([tuple(column[run]) for column in columns])) for run in runs]

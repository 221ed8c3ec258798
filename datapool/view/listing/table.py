"""The columns of one kind of row, by number, in memory: a question scans arrays, and no row is decoded for it.

Invariant: a row keeps its number, and its key is its place: keys sort like its ids. A missing value is NaN; a word is
its code, in order of arrival; order among words is computed when needed.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from claw_r1.datapool.view.listing.columns import Column
from claw_r1.datapool.view.store import as_bytes, as_text, packed, unpacked

Floats = NDArray[np.float64]
RowNumbers = NDArray[np.int64]
RowMask = NDArray[np.bool_]
CellValue = Any  # str | tuple[str, ...] | bool | int | float | None, as the column's type says
FIRST_ROWS = 256
MERGED_ROWS = 2000
"""From this number of new rows on, all are sorted again, which is quick for nearly ordered rows."""
BETWEEN = re.compile(rb"\0(?!\xff)")


def key_of(ids: Sequence[str]) -> bytes:
    """Keys sort as the ids do, whatever characters they have."""
    return b"\0".join([as_bytes(each).replace(b"\0", b"\0\xff") for each in ids])


def ids_of(key: bytes) -> tuple[str, ...]:
    """The inverse of `key_of`."""
    return tuple(as_text(part.replace(b"\0\xff", b"\0")) for part in BETWEEN.split(key))


class TableSnapshot(Struct, array_like=True):
    """All of a table, by number. Arrays as bytes, in this machine's byte order; words as bytes, since text may not be
    Unicode."""

    keys: list[bytes]
    values: list[bytes]
    alive: bytes
    owners: bytes
    order: bytes
    words: dict[str, list[bytes | list[bytes]]]


class _Codes(dict[Any, Any]):  # codes are whole numbers
    """The code of each word, given when it first comes; that of None is NaN."""

    def __init__(self, words: list[Any]) -> None:
        self[None] = math.nan
        self._words = words

    def __missing__(self, word: Any) -> int:
        code = self[word] = len(self._words)
        self._words.append(word)
        return code


def _lowered(key: bytes, text: str) -> bytes:
    lowered = text.lower()
    return key if lowered == text else as_bytes(lowered)


class ColumnTable:
    """Rows are reserved, put and dropped by number. Not thread-safe."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        readers = {name: each.read for name, each in columns.items() if each.read is not None}
        self._at = {name: at for at, name in enumerate(readers)}
        self._readers = [attrgetter(read) if isinstance(read, str) else read for read in readers.values()]
        self._times = {name for name in readers if columns[name].type == "time_us"}
        self.words: dict[str, list[Any]] = {name: [] for name in readers if columns[name].type in ("word", "words")}
        """The words, or tuples of words, of each column of words by code."""
        self.codes = {name: _Codes(words) for name, words in self.words.items()}
        """By word or tuple of words."""
        self._values: Floats = np.full((FIRST_ROWS, len(self._at)), np.nan, order="F")
        self._alive: RowMask = np.zeros(FIRST_ROWS, bool)
        self._owners: RowNumbers = np.zeros(FIRST_ROWS, np.int64)
        self._keys: list[bytes] = []
        self.lowered: list[bytes] = []
        """Ids in lower case, to look for a text in."""
        self._order: RowNumbers = np.empty(0, np.int64)
        self._ranks: RowNumbers = np.empty(0, np.int64)
        self._word_ranks: dict[str, Floats] = {}
        self.changes = 0

    def snapshot(self) -> TableSnapshot:
        """Returns what `restore` takes."""
        return TableSnapshot(
            keys=self._keys,
            values=[self.values(name).tobytes() for name in self._at],
            alive=self.alive.tobytes(),
            owners=self.owners.tobytes(),
            order=self.order().tobytes(),
            words={name: [packed(word) for word in words] for name, words in self.words.items()},
        )

    def restore(self, snapshot: TableSnapshot) -> None:
        """Take the place of this table, which is empty, by one of the same columns."""
        self._keys = snapshot.keys
        self.lowered = [key.lower() if key.isascii() else _lowered(key, "\0".join(ids_of(key))) for key in self._keys]
        rows = max(len(self._keys), FIRST_ROWS)
        self._values = np.full((rows, len(self._at)), np.nan, order="F")
        self._alive, self._owners = np.zeros(rows, bool), np.zeros(rows, np.int64)
        for at, column in enumerate(snapshot.values):
            self._values[: len(self), at] = np.frombuffer(column, np.float64)
        self._alive[: len(self)] = np.frombuffer(snapshot.alive, bool)
        self._owners[: len(self)] = np.frombuffer(snapshot.owners, np.int64)
        self._order = np.frombuffer(snapshot.order, np.int64)
        self._ranks = np.empty_like(self._order)
        self._ranks[self._order] = np.arange(len(self._order))
        for name, words in snapshot.words.items():
            for word in words:
                self.codes[name][unpacked(word)]  # which gives it the next code

    def __len__(self) -> int:
        """Numbers that were ever reserved."""
        return len(self._keys)

    def reserve(self, ids: Sequence[str], owner: int = 0) -> int:
        """The next number, for a row that may come later. owner: the number of what it is in."""
        number, text = len(self._keys), "\0".join(ids)
        if number == len(self._alive):
            self._values = np.asfortranarray(np.concatenate([self._values, np.full_like(self._values, np.nan)]))
            self._alive = np.concatenate([self._alive, np.zeros_like(self._alive)])
            self._owners = np.concatenate([self._owners, np.zeros_like(self._owners)])
        key = as_bytes(text) if text.count("\0") == len(ids) - 1 else key_of(ids)
        self._keys.append(key)
        self.lowered.append(_lowered(key, text))
        self._owners[number] = owner
        return number

    def put(self, numbers: Sequence[int], records: Sequence[object]) -> None:
        """Take the columns of rows in; of many at once each costs a fifth."""
        for (name, at), read in zip(self._at.items(), self._readers, strict=True):
            column = list(map(read, records))
            if name in self.codes:
                column = list(map(self.codes[name].__getitem__, column))
            values = np.array(column, np.float64)  # None is NaN there
            if name in self._times:
                values[values == 0] = np.nan
            self._values[numbers, at] = values
        self._alive[numbers] = True
        self.changes += 1

    def drop(self, number: int) -> None:
        """The row is gone; its number may be put again."""
        self._values[number] = np.nan
        self._alive[number] = False
        self.changes += 1

    def has(self, number: int) -> bool:
        """Returns whether there is a row of this number."""
        return bool(self._alive[number])

    @property
    def alive(self) -> RowMask:
        """The mask of the numbers that have a row."""
        return self._alive[: len(self)]

    @property
    def owners(self) -> RowNumbers:
        """By number, rows that are not there yet, too."""
        return self._owners[: len(self)]

    def values(self, name: str) -> Floats:
        """A column by number: of words, their codes."""
        return self._values[: len(self), self._at[name]]

    def sortable(self, name: str, values: Floats) -> Floats:
        """The values of a column, in which words are their ranks; also of rows elsewhere that have its words."""
        if name not in self.words:
            return values
        ranked: Floats = self._ranks_of(name)[np.nan_to_num(values, nan=-1).astype(np.int64)]
        return ranked

    def holding(self, name: str, words: Sequence[Any]) -> RowMask:
        """Rows whose column has one of these words or tuples of words."""
        codes = [self.codes[name][word] for word in words if word in self.codes[name]]
        values = self.values(name)
        return values == codes[0] if len(codes) == 1 else np.isin(values, codes)

    def number_of(self, ids: Sequence[str]) -> int:
        """-1 where there is none. A step that was dropped and came back has a second number, which counts."""
        first, behind = (int(self.place_of_ids(ids, behind=side) + 0.5) for side in (False, True))
        numbers = self._order[first:behind].tolist()
        return max(numbers, key=lambda number: bool(self._alive[number]), default=-1)

    def ending_with(self, name: str) -> list[int]:
        """Numbers of those whose last id this is."""
        end = b"\0" + key_of([name])
        return [number for number, key in enumerate(self._keys) if key.endswith(end)]

    def ids(self, number: int) -> tuple[str, ...]:
        return ids_of(self._keys[number])

    def ranks(self) -> RowNumbers:
        """By number, the place of each in the order of ids."""
        self._sort()
        return self._ranks

    def order(self) -> RowNumbers:
        """Numbers in order of ids."""
        self._sort()
        return self._order

    def place_of_ids(self, ids: Sequence[str], *, behind: bool) -> float:
        """Between which ranks ids are: behind a row that has them, or before."""
        side = bisect_right if behind else bisect_left
        return side(self.order(), key_of(ids), key=self._keys.__getitem__) - 0.5

    def _sort(self) -> None:
        before, key = len(self._order), self._keys.__getitem__
        new = sorted(range(before, len(self)), key=key)
        if len(new) > MERGED_ROWS:
            self._order = np.array(sorted([*self._order.tolist(), *new], key=key), np.int64)
        elif new:
            places = [bisect_left(self._order, self._keys[number], key=key) for number in new]
            self._order = np.insert(self._order, places, new)
        if new:
            self._ranks = np.empty_like(self._order)
            self._ranks[self._order] = np.arange(len(self._order))

    def _ranks_of(self, name: str) -> Floats:
        """The rank of each word of a column by its code; behind the last, that of no word."""
        ranks = self._word_ranks.get(name, np.full(1, np.nan))
        if len(ranks) != len(self.words[name]) + 1:
            order = sorted(range(len(self.words[name])), key=self.words[name].__getitem__)
            ranks = np.full(len(order) + 1, np.nan)
            ranks[order] = np.arange(len(order))
            self._word_ranks[name] = ranks
        return ranks

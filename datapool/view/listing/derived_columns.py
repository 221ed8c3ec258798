"""Columns that other rows make: of a trajectory by its calls and its group, of a group by its members. Made anew when a row has
changed."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from claw_r1.datapool.view.listing.table import ColumnTable, Floats, RowMask

if TYPE_CHECKING:
    from claw_r1.datapool.view.listing.columns import RowKind
    from claw_r1.datapool.view.listing.tables import PoolTables


class DerivedColumns:
    """Columns are kept until a row of any kind changes. Not thread-safe."""

    def __init__(self, tables: "PoolTables") -> None:
        self._tables = tables
        self._made: dict[tuple[RowKind, str], tuple[tuple[int, ...], Floats]] = {}
        self._makers: dict[str, Callable[[RowKind], Floats]] = {
            "calls": lambda _: self._sum("groups", tables.values("trajectories", "calls"), tables.trajectories),
            "tokens": lambda kind: self._of_steps(kind, "tokens"),
            "response_tokens": lambda kind: self._of_steps(kind, "response_tokens"),
            "quality": self._quality,
            "scorers_apart": self._scorers_apart,
            "doubt": self._doubt,
            "started": self._started,
            "distance": self._distance,
            "finish": self._finish,
        }

    def get(self, kind: "RowKind", name: str) -> Floats:
        """By number; a word is its code in the table of steps."""
        tables = self._tables
        changes = (tables.groups.changes, tables.trajectories.changes, tables.steps.changes)
        made_at, values = self._made.get((kind, name), ((), np.empty(0)))
        if made_at != changes or len(values) != len(tables.table(kind)):
            values = self._makers[name](kind)
            values[~tables.table(kind).alive] = np.nan
            self._made[kind, name] = changes, values
        return values

    def _sum(self, kind: "RowKind", values: Floats, of: ColumnTable) -> Floats:
        """Over the rows of another table that are in each row of this kind; of a group, those that count in it."""
        tables, owners = self._tables, of.owners
        if kind == "groups":
            is_counted = self._is_counted()
            if of is tables.steps:
                is_counted, owners = is_counted[owners], tables.groups_of("steps")
            values = np.where(is_counted, values, 0.0)
        return np.bincount(owners, np.nan_to_num(values), len(tables.table(kind))).astype(np.float64)

    def _is_counted(self) -> RowMask:
        """By number of a trajectory, whether it is a member; where a row has no room for all, every one is."""
        tables = self._tables
        return tables.of_members() | tables.at("groups", list(tables.left_out))[tables.trajectories.owners]

    def _of_steps(self, kind: "RowKind", name: str) -> Floats:
        return self._sum(kind, self._tables.steps.values(name), self._tables.steps)

    def _quality(self, kind: "RowKind") -> Floats:
        steps = self._tables.steps
        values = steps.values("quality")
        with np.errstate(invalid="ignore"):  # of none: NaN
            return self._sum(kind, values, steps) / self._sum(kind, (~np.isnan(values)).astype(float), steps)

    def _started(self, _: "RowKind") -> Floats:
        steps, trajectories = self._tables.steps, self._tables.trajectories
        first = np.full(len(trajectories), np.inf)
        np.minimum.at(first, steps.owners, np.nan_to_num(steps.values("started"), nan=np.inf))
        registered = trajectories.values("registered")
        return np.where(np.isnan(registered), np.where(np.isinf(first), np.nan, first), registered)

    def _distance(self, _: "RowKind") -> Floats:
        trajectories = self._tables.trajectories
        distances: Floats = trajectories.values("return") - self._tables.groups.values("return")[trajectories.owners]
        return distances

    def _finish(self, _: "RowKind") -> Floats:
        """The reason of the call that came in last; of equal times, of the last by its id."""
        steps, words = self._tables.steps, np.full(len(self._tables.trajectories), np.nan)
        started = np.where(steps.alive, np.nan_to_num(steps.values("started"), nan=-np.inf), -np.inf)
        last = np.full(len(words), -np.inf)
        np.maximum.at(last, steps.owners, started)
        level = np.flatnonzero(steps.alive & (started == last[steps.owners]))
        level = level[np.argsort(steps.ranks()[level])]
        words[steps.owners[level]] = steps.values("finish")[level]
        return words

    def _doubt(self, kind: "RowKind") -> Floats:
        tables = self._tables
        if kind == "groups":
            most = np.zeros(len(tables.groups))
            doubts = np.where(self._is_counted(), self.get("trajectories", "doubt"), 0.0)
            np.maximum.at(most, tables.trajectories.owners, np.nan_to_num(doubts))
            return most
        people = np.nan_to_num(tables.trajectories.values("people_apart"))
        np.maximum.at(people, tables.steps.owners, np.nan_to_num(tables.steps.values("doubt")))
        return people + np.nan_to_num(self.get("trajectories", "scorers_apart"))

    def _scorers_apart(self, _: "RowKind") -> Floats:
        """The distance between the highest and the lowest rank that scorers give; a rank is the share below, half of those beside."""
        size = len(self._tables.trajectories)
        low, high = np.full(size, np.inf), np.full(size, -np.inf)
        for scores in self._tables.scores_of("trajectories"):
            numbers = np.fromiter(scores.keys(), np.int64, len(scores))
            values = np.fromiter(scores.values(), np.float64, len(scores))
            ordered = np.sort(values)
            beside = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
            ranks = beside / 2 / max(1, len(values))
            low[numbers], high[numbers] = np.minimum(low[numbers], ranks), np.maximum(high[numbers], ranks)
        return np.where(high > low, high - low, 0.0)

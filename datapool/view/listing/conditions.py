"""The conditions of a filter's fields, by columns: one mask for each field that is set."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from claw_r1.datapool.view.listing.columns import TASK_CHARACTERS, RowKind
from claw_r1.datapool.view.listing.pool_filter import PoolFilter, score_bound, time_span
from claw_r1.datapool.view.listing.table import ColumnTable, Floats, RowMask

if TYPE_CHECKING:
    from claw_r1.datapool.view.listing.tables import PoolTables


def masks(tables: "PoolTables", kind: RowKind, terms: PoolFilter) -> Iterator[RowMask]:
    """Makes one mask for each field of a filter that is set."""
    table, reward = tables.table(kind), "reward" if kind == "steps" else "return"
    tests: list[tuple[Any, Callable[[Any], RowMask]]] = [
        (terms.group, lambda value: tables.groups_of(kind) == tables.groups.number_of((value,))),
        (terms.trajectory, lambda value: _named(tables, kind, value)),
        (terms.channel, lambda value: table.holding("channel", [value])),
        (terms.agent, lambda value: _played_by(tables, kind, value)),
        (terms.run, lambda value: table.holding("run", [value])),
        (terms.task, lambda value: table.holding("task", [value[:TASK_CHARACTERS]])),
        (terms.status, lambda value: _having(tables, kind, "status", value)),
        (terms.finish, lambda value: _having(tables, kind, "finish", value)),
        (terms.reason, lambda value: _naming(table, "reasons", value)),
        (terms.time, lambda value: _within(tables, kind, *time_span(value))),
        (terms.ready, lambda value: _ready(tables, kind) == value),
        (terms.reward_min, lambda value: table.values(reward) >= value),
        (terms.reward_max, lambda value: table.values(reward) <= value),
        (terms.version_min, lambda value: table.values("version_max") >= value),
        (terms.version_max, lambda value: table.values("version_min") <= value),
        (terms.text, lambda value: tables.saying(kind, value)),
    ]
    yield from (test(value) for value, test in tests if value is not None)
    judged = _judged(tables, terms)
    if kind == "steps":
        yield from judged
        yield from (_carrying(tables, "steps", tag) for tag in terms.tag)
    elif judged or terms.tag:
        yield _holding(tables, kind, judged, terms.tag)


def _having(tables: "PoolTables", kind: RowKind, name: str, word: str) -> RowMask:
    """Rows whose column has the word; a group has the words of its members."""
    of_kind: RowKind = "trajectories" if kind == "groups" else kind
    code = tables.table_of_words(of_kind, name).codes[name].get(word, -1)
    mask: RowMask = tables.codes(of_kind, name) == code
    return mask if kind != "groups" else tables.at("groups", tables.trajectories.owners[mask & tables.of_members()])


def _within(tables: "PoolTables", kind: RowKind, begin_us: float, end_us: float) -> RowMask:
    times = tables.times(kind)
    within: RowMask = (times >= begin_us) & (times < end_us)
    return within


def _ready(tables: "PoolTables", kind: RowKind) -> Floats:
    """A step is as ready as its trajectory."""
    return (
        tables.trajectories.values("ready")[tables.steps.owners]
        if kind == "steps"
        else tables.table(kind).values("ready")
    )


def _judged(tables: "PoolTables", terms: PoolFilter) -> list[RowMask]:
    """Makes the masks for the fields that only steps have."""
    tests: list[tuple[Any, Callable[[Any], RowMask]]] = [
        (terms.trainable, lambda value: tables.steps.values("trainable") == value),
        (terms.quality_min, lambda value: tables.steps.values("quality") >= value),
        (terms.quality_max, lambda value: tables.steps.values("quality") <= value),
    ]
    conditions = [test(value) for value, test in tests if value is not None]
    for bound in map(score_bound, terms.score):
        scores = tables.scores_by("steps", bound.scorer)
        numbers = [number for number, score in scores.items() if bound.low <= score <= bound.high]
        conditions.append(tables.at("steps", numbers))
    return conditions


def _holding(tables: "PoolTables", kind: RowKind, judged: Sequence[RowMask], tags: Sequence[str]) -> RowMask:
    """Masks the trajectories or groups that have a step which passes all tests and carries all tags; where there are
    only tags, a row that carries them itself is in the mask too."""
    meeting = tables.steps.alive.copy()
    for test in (*judged, *(_carrying(tables, "steps", tag) for tag in tags)):
        meeting &= test
    trajectories = tables.at("trajectories", tables.steps.owners[meeting])
    if not judged:
        trajectories |= np.all([_carrying(tables, "trajectories", tag) for tag in tags], axis=0)
    if kind == "trajectories":
        return trajectories
    groups = tables.at("groups", tables.trajectories.owners[trajectories])
    return groups if judged else groups | np.all([_carrying(tables, "groups", tag) for tag in tags], axis=0)


def _carrying(tables: "PoolTables", kind: RowKind, tag: str) -> RowMask:
    """Rows that have a tag, or are in what has it."""
    mask = _naming(tables.table(kind), "tags", tag)
    if kind == "steps":
        mask |= _naming(tables.trajectories, "tags", tag)[tables.steps.owners]
    return mask if kind == "groups" else mask | _naming(tables.groups, "tags", tag)[tables.groups_of(kind)]


def _named(tables: "PoolTables", kind: RowKind, name: str) -> RowMask:
    numbers = tables.trajectories.ending_with(name)
    if kind == "groups":
        alive, left_out = tables.trajectories.alive, tables.left_out
        owners = tables.trajectories.owners
        members = [n for n in numbers if tables.of_members()[n] or (int(owners[n]) in left_out and bool(alive[n]))]
        return tables.at("groups", owners[members])
    mask = tables.at("trajectories", numbers)
    return mask if kind == "trajectories" else mask[tables.steps.owners]


def _played_by(tables: "PoolTables", kind: RowKind, agent: str) -> RowMask:
    """A group is played by the declared agent, and by those of its members."""
    mask = tables.table(kind).holding("agent", [agent])
    if kind != "groups":
        return mask
    members = tables.trajectories.holding("agent", [agent]) & tables.of_members()
    return mask | tables.at("groups", tables.trajectories.owners[members])


def _naming(table: ColumnTable, name: str, word: str) -> RowMask:
    """Rows that have the word themselves, among those of a column of words."""
    return table.holding(name, [words for words in table.words[name] if word in words])

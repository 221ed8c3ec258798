"""The pool in numbers, each with the filter that gives exactly its count: a number's link leads to the rows
behind it. Pure."""

from collections.abc import Mapping

import numpy as np

from claw_r1.datapool.view.listing.columns import RowKind
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.listing.table import RowMask
from claw_r1.datapool.view.listing.tables import PoolTables
from claw_r1.schemas.http import Channel
from claw_r1.schemas.json_values import JsonDict

RATE_S = 300
"""Rates are those of the last so many seconds."""
REASONS_MAX = 12
"""The most reasons of one kind, the most frequent first."""
FilterValues = Mapping[str, str | bool]


def tally(tables: PoolTables, run_id: str | None, channel: str, now_us: int) -> JsonDict:
    """Counts what a run collects to train on; run_id None: all runs."""
    own = {"channel": channel} if run_id is None else {"channel": channel, "run": run_id}
    held_out = {**own, "channel": Channel.VALIDATION}
    started = tables.steps.values("started")[matching(tables, "steps", own)]
    return {
        "calls": number(tables, "steps", own),
        "calls_untrainable": number(tables, "steps", {**own, "trainable": False}),
        "calls_per_minute": round(int(np.sum(started > now_us - RATE_S * 1e6)) * 60 / RATE_S, 2),
        "trajectories": number(tables, "trajectories", own),
        "trajectories_open": number(tables, "trajectories", {**own, "status": "open"}),
        "trajectories_ready": number(tables, "trajectories", {**own, "ready": True}),
        "trajectories_of_evaluations": number(tables, "trajectories", held_out),
        "groups": number(tables, "groups", own),
        "groups_ready": number(tables, "groups", {**own, "ready": True}),
        "left_out": {
            "calls that cannot be trained": reasons(tables, "steps", {**own, "trainable": False}),
            "trajectories that are not ready": reasons(tables, "trajectories", {**own, "ready": False}),
            "groups that are not ready": reasons(tables, "groups", {**own, "ready": False}),
        },
    }


def matching(tables: PoolTables, kind: RowKind, values: FilterValues) -> RowMask:
    """The mask of the rows of a filter."""
    return tables.mask(kind, PoolFilter(**values))  # type: ignore[arg-type]  # by the field's name


def number(tables: PoolTables, kind: RowKind, values: FilterValues) -> JsonDict:
    """`count`, and `to`: the view that lists these rows, with what it shows."""
    return {
        "count": int(matching(tables, kind, values).sum()),
        "to": ("explorer", address(kind, values)),
    }


def reasons(tables: PoolTables, kind: RowKind, values: FilterValues) -> list[JsonDict]:
    """A number for each reason that rows of the filter have; a row of several reasons is counted by each."""
    counts = tables.counted(kind, "reasons", matching(tables, kind, values)).most_common(REASONS_MAX)
    return [
        {
            "reason": word,
            "count": several,
            "to": ("explorer", address(kind, {**values, "reason": str(word)})),
        }
        for word, several in counts
    ]


def address(kind: RowKind, values: FilterValues) -> JsonDict:
    """A filter as an address has it."""
    return {
        "kind": kind,
        **{name: (str(value).lower() if isinstance(value, bool) else value) for name, value in values.items()},
    }

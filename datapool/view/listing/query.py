"""Questions to a listed view of the pool: filters over steps, trajectories and groups, in pages, with counts.

Invariant: a page has the rows after a key, in order of ids, so pages neither overlap nor miss a row that stayed;
filters scan columns (`listing/tables.py`); results are decoded.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from claw_r1.datapool.view.listing.pool_filter import EVERYTHING, PoolFilter
from claw_r1.datapool.view.rows import PoolRows, as_step
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord

if TYPE_CHECKING:
    from claw_r1.datapool.view.listing.columns import RowKind
    from claw_r1.datapool.view.listing.table import RowMask
    from claw_r1.datapool.view.listing.tables import PoolTables


def trajectory_id(record: TrajectoryRecord) -> tuple[str, ...]:
    return record.group_id, record.trajectory_id


def find_steps(
    rows: PoolRows,
    pool_filter: PoolFilter,
    after: tuple[str, ...] = (),
    limit: int | None = None,
    also: Callable[[StepRecord], bool] = lambda _: True,
) -> list[StepRecord]:
    """Steps that meet the filter and `also`, behind `after` (a step's ids), at most `limit`."""
    records = rows.tables.select("steps", pool_filter, after)
    return list(islice((row for row in records if isinstance(row, StepRecord) and also(row)), limit))


def find_trajectories(
    rows: PoolRows, pool_filter: PoolFilter, after: tuple[str, ...] = (), limit: int | None = None
) -> list[TrajectoryRecord]:
    """Trajectories that meet the filter, behind `after` (group_id, trajectory_id)."""
    records = rows.tables.select("trajectories", pool_filter, after)
    return list(islice((row for row in records if isinstance(row, TrajectoryRecord)), limit))


def find_groups(
    rows: PoolRows, pool_filter: PoolFilter, after: tuple[str, ...] = (), limit: int | None = None
) -> list[GroupRecord]:
    """Groups that meet the filter, whole or not, behind `after` (group_id,)."""
    records = rows.tables.select("groups", pool_filter, after)
    return list(islice((row for row in records if isinstance(row, GroupRecord)), limit))


def steps_of(rows: PoolRows, group_id: str, trajectory_id: str) -> list[StepRecord]:
    """All steps of a trajectory, captured or not, in order of their ids."""
    return [as_step(value) for _, value in sorted(rows.store.steps(group_id, trajectory_id).items())]


def step_says(step: StepRecord, text: str) -> bool:
    """Returns whether an id, a tag or the note of a step holds the text, in any case."""
    note, tags = (step.curation.note, step.curation.tags) if step.curation else (None, ())
    words = (step.call_id, step.trajectory_id, step.group_id, note, *step.tags, *tags)
    return text.lower() in "\0".join(filter(None, words)).lower()


def stats(
    rows: PoolRows, pool_filter: PoolFilter = EVERYTHING, steps: Iterable[StepRecord] | None = None
) -> dict[str, Any]:
    """Counts over the filter's results of each kind: steps and tokens by channel, states and reasons. JSON.

    steps: its results, for a caller that also searches text elsewhere.
    """
    tables = rows.tables
    groups, trajectories = (tables.mask(kind, pool_filter) for kind in ("groups", "trajectories"))
    ids = None if steps is None else [(step.group_id, step.trajectory_id, step.call_id) for step in steps]
    of_steps = tables.mask("steps", pool_filter) if ids is None else tables.at("steps", tables.numbers("steps", ids))
    status = dict(sorted(tables.counted("trajectories", "status", trajectories).items()))
    return {
        "groups": _summary(tables, "groups", groups),
        "trajectories": {**_summary(tables, "trajectories", trajectories), "status": status},
        "steps": _step_stats(tables, of_steps),
    }


def _summary(tables: "PoolTables", kind: "RowKind", mask: "RowMask") -> dict[str, Any]:  # JSON
    return {
        "total": int(mask.sum()),
        "ready": tables.counted(kind, "ready", mask)[True],
        "channels": _channels(tables, kind, mask),
        "not_ready": dict(sorted(tables.counted(kind, "reasons", mask).items())),
    }


def _step_stats(tables: "PoolTables", mask: "RowMask") -> dict[str, Any]:  # JSON
    return {
        "total": int(mask.sum()),
        "trainable": tables.counted("steps", "trainable", mask)[True],
        "curated": tables.counted("steps", "curated", mask)[True],
        "prompt_tokens": int(tables.steps.values("prompt_tokens")[mask].sum()),
        "response_tokens": int(tables.steps.values("response_tokens")[mask].sum()),
        "channels": _channels(tables, "steps", mask),
        "not_trainable": dict(sorted(tables.counted("steps", "reasons", mask).items())),
    }


def _channels(tables: "PoolTables", kind: "RowKind", mask: "RowMask") -> Mapping[str, int]:
    counts = tables.counted(kind, "channel", mask)
    return dict(sorted((channel or "unknown", many) for channel, many in counts.items()))

"""The selection of the steps that an act of the page judges, and of the trajectories that it evicts: by the
columns that its lists are made of, so that an act takes what the list had, and only rows that are taken are
decoded.

A place is [group], [group, trajectory] or [group, trajectory, call]. Trajectory ids repeat across groups; a
place does not.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence

import numpy as np

from claw_r1.consumers.pool.curation import steps_named
from claw_r1.consumers.pool.eviction import EvictableRow, rows_of
from claw_r1.datapool.fold.readiness import EVICTED
from claw_r1.datapool.view.listing.columns import RowKind
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.listing.table import RowMask
from claw_r1.datapool.view.listing.tables import PoolTables
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord

SelectedIds = Sequence[str]


class TooMany(ValueError):
    """More rows than one act takes."""


def digest_of(places: Iterable[SelectedIds]) -> str:
    """Returns the digest of a set of places: the same where the same is meant."""
    return hashlib.sha256(json.dumps(sorted(map(list, places))).encode()).hexdigest()


def select_steps(
    rows: PoolRows, kind: RowKind, filters: PoolFilter, ids: Sequence[str], places: Sequence[SelectedIds], most: int
) -> list[StepRecord]:
    """The steps in one of these places, or of these ids (neither: all), that meet the filter, or are in what meets it, in order.

    Raises TooMany, PoolRefusal for an id that several groups have.
    """
    tables = rows.tables
    mask = _steps_of(tables, kind, tables.mask(kind, filters))
    if ids or places:
        mask &= _within(tables, [*places, *(steps_named(rows, ids, filters.group) if ids else ())])
    numbers = np.flatnonzero(mask).tolist()
    if len(numbers) > most:
        raise TooMany(f"{len(numbers)} steps are more than {most}")
    steps = [record for number in numbers if isinstance(record := tables.record("steps", number), StepRecord)]
    return sorted(steps, key=lambda step: (step.group_id, step.trajectory_id, step.call_id))


def select_evictable(
    rows: PoolRows, ids: Sequence[str], group: str | None, places: Sequence[SelectedIds]
) -> dict[str, list[EvictableRow]]:
    """Selects groups and trajectories like `rows_of`; a place is named by its ids with slashes between them. Raises
    PoolRefusal."""
    tables = rows.tables
    mask = np.isin(tables.trajectories.owners, [tables.groups.number_of((name,)) for name in ids])
    mask[[number for name in ids for number in tables.trajectories.ending_with(name)]] = True
    named: list[EvictableRow] = [*_groups(tables, [(name,) for name in ids]), *_trajectories(tables, mask)]
    rows_by_id = rows_of(named, ids, group) if ids else {}
    for place in places:
        if len(place) == 1:
            of_place = tables.trajectories.owners == tables.groups.number_of(place)
            rows_by_id["/".join(place)] = [*_groups(tables, [place]), *_trajectories(tables, of_place)]
        else:
            of_place = np.arange(len(tables.trajectories)) == tables.trajectories.number_of(place)
            rows_by_id["/".join(place)] = [*_trajectories(tables, of_place)]
    return rows_by_id


def evicted_rows(rows: PoolRows) -> list[EvictableRow]:
    """The groups and trajectories that are evicted, in no order."""
    tables = rows.tables
    groups = np.flatnonzero(tables.groups.holding("reasons", [(EVICTED,)]) & tables.groups.alive).tolist()
    stubs = [row for number in groups if isinstance(row := tables.record("groups", number), GroupRecord)]
    return [*stubs, *_trajectories(tables, tables.trajectories.holding("status", ["evicted"]))]


def _groups(tables: PoolTables, places: Iterable[SelectedIds]) -> list[GroupRecord]:
    numbers = (tables.groups.number_of(place) for place in places)
    alive = (number for number in numbers if number >= 0 and tables.groups.alive[number])
    return [row for number in alive if isinstance(row := tables.record("groups", number), GroupRecord)]


def _trajectories(tables: PoolTables, mask: RowMask) -> list[TrajectoryRecord]:
    numbers = np.flatnonzero(mask & tables.trajectories.alive).tolist()
    records = (tables.record("trajectories", number) for number in numbers)
    return [record for record in records if isinstance(record, TrajectoryRecord)]


def _steps_of(tables: PoolTables, kind: RowKind, mask: RowMask) -> RowMask:
    """The steps of the rows of a kind."""
    if kind == "steps":
        return mask
    owners = tables.steps.owners if kind == "trajectories" else tables.groups_of("steps")
    of_rows: RowMask = mask[owners] & tables.steps.alive
    return of_rows


def _within(tables: PoolTables, places: Sequence[SelectedIds]) -> RowMask:
    groups = [tables.groups.number_of(place) for place in places if len(place) == 1]
    trajectories = [tables.trajectories.number_of(place) for place in places if len(place) == 2]
    mask: RowMask = np.isin(tables.groups_of("steps"), groups) | np.isin(tables.steps.owners, trajectories)
    numbers = [tables.steps.number_of(place) for place in places if len(place) == 3]
    mask[[number for number in numbers if number >= 0]] = True
    return mask

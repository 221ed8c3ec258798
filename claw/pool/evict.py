"""`claw pool evict`: trajectories erased from the pool by an operator, as TrajectoryEvicted on claw.calls.

An eviction cannot be undone. So an id that is unknown, or that several groups have, evicts nothing at all.
"""

from collections.abc import Iterable, Mapping, Sequence

import orjson

from claw.errors import CannotRun
from claw.pool.acts import act_envelope, append
from claw.pool.reading import open_pool
from claw.show.rendering import as_plain
from schemas.envelopes import new_id
from schemas.events import TrajectoryEvicted, TrajectoryRecord
from schemas.topics import CALLS, TRAJECTORIES

PRODUCER = "claw pool evict"


def run_evict(
    ids: Sequence[str],
    group: str | None,
    *,
    why: str,
    who: str | None,
    dry_run: bool,
    prefix: str,
    as_json: bool,
) -> int:
    """Evicts the trajectories of the ids; exit code 1 when an id is unknown, or everything is evicted already. Raises CannotRun."""
    if not why.strip():
        raise CannotRun("why? --why TEXT: the facts keep the reason")
    if not who:
        raise CannotRun("who evicts? --who NAME")
    with open_pool(prefix, topics=[TRAJECTORIES]) as pool:
        rows_by_id = pool.view.ask(lambda rows: rows_of(rows.trajectory_rows(), ids, group))
        unknown = [name for name, rows in rows_by_id.items() if not rows]
        eviction_id = new_id()
        events = [] if unknown else [_event(row, why, who, eviction_id) for row in not_evicted(rows_by_id)]
        if not dry_run:
            append(pool.settings, CALLS, events)
    _say(events, unknown, eviction_id, dry_run=dry_run, as_json=as_json)
    return 0 if events else 1


def rows_of(
    rows: Iterable[TrajectoryRecord], ids: Sequence[str], group: str | None
) -> dict[str, list[TrajectoryRecord]]:
    """By id the trajectories of the group of that id, or the trajectory of that id, evicted or not.

    group: only trajectories of this group count.

    Raises CannotRun for a trajectory id that several groups have.
    """
    rows_by_id: dict[str, list[TrajectoryRecord]] = {name: [] for name in ids}
    for row in rows:
        if group not in (None, row.group_id):
            continue
        for name in {row.group_id, row.trajectory_id} & rows_by_id.keys():
            rows_by_id[name].append(row)
    for name, each in rows_by_id.items():
        if len(groups := {row.group_id for row in each}) > 1:
            raise CannotRun(f"{name} is in {len(groups)} groups, one of them {min(groups)}: say which, --group ID")
    return rows_by_id


def not_evicted(rows_by_id: Mapping[str, Sequence[TrajectoryRecord]]) -> list[TrajectoryRecord]:
    """The trajectories that are not evicted yet, each once, in order: an eviction that broke off is simply repeated."""
    rows = {(row.group_id, row.trajectory_id): row for each in rows_by_id.values() for row in each}
    return [row for _, row in sorted(rows.items()) if row.status != "evicted"]


def _event(row: TrajectoryRecord, why: str, who: str, eviction_id: str) -> TrajectoryEvicted:
    return TrajectoryEvicted(
        envelope=act_envelope(PRODUCER, eviction_id),
        group_id=row.group_id,
        trajectory_id=row.trajectory_id,
        reason=why,
        requested_by=who,
    )


def _say(
    events: Sequence[TrajectoryEvicted], unknown: Sequence[str], eviction_id: str, *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        summary = {"eviction_id": eviction_id, "trajectories": len(events), "dry_run": dry_run, "unknown": unknown}
        print(orjson.dumps({**summary, "events": [as_plain(event) for event in events]}).decode())
        return
    for event in events:
        print(f"{event.group_id}/{event.trajectory_id}")
    for name in unknown:
        print(f"{name}: the pool has no such group or trajectory")
    print(f"{len(events)} trajectories {'would be' if dry_run else 'are'} evicted" if events else "nothing is evicted")

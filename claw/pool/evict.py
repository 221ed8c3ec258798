"""`claw pool evict`: trajectories erased from the pool by an operator, as TrajectoryEvicted on claw.calls."""

from collections.abc import Sequence

import orjson

from claw_r1.claw.errors import CannotRun
from claw_r1.claw.pool.acts import append
from claw_r1.claw.pool.reading import open_pool
from claw_r1.consumers.pool.eviction import evictions, rows_of
from claw_r1.consumers.pool.plain import as_plain
from claw_r1.schemas.envelopes import new_id
from claw_r1.schemas.events import TrajectoryEvicted
from claw_r1.schemas.topics import CALLS, TRAJECTORIES

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
    """Evicts the trajectories of the ids; exit code 1 when an id is unknown, or everything is evicted already.

    Raises CannotRun, PoolRefusal.
    """
    if not why.strip():
        raise CannotRun("why? --why TEXT: the facts keep the reason")
    if not who:
        raise CannotRun("who evicts? --who NAME")
    with open_pool(prefix, topics=[TRAJECTORIES]) as pool:
        rows_by_id = pool.view.ask(lambda rows: rows_of(rows.trajectory_rows(), ids, group))
        eviction_id = new_id()
        events, unknown = evictions(rows_by_id, why=why, who=who, producer=PRODUCER, act_id=eviction_id)
        if not dry_run:
            append(pool.settings, CALLS, events)
    _say(events, unknown, eviction_id, dry_run=dry_run, as_json=as_json)
    return 0 if events else 1


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

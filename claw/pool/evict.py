"""`claw pool evict`: trajectories erased from the pool by an operator, as TrajectoryEvicted on claw.calls."""

from collections.abc import Sequence

from claw_r1.claw.answers import Answer
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.pool.acts import append
from claw_r1.claw.pool.reading import open_pool
from claw_r1.consumers.pool.eviction import evictions, rows_of
from claw_r1.consumers.pool.plain import as_plain
from claw_r1.schemas.envelopes import new_id
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
) -> Answer:
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
    summary = {"eviction_id": eviction_id, "trajectories": len(events), "dry_run": dry_run, "unknown": unknown}
    lines = [f"{event.group_id}/{event.trajectory_id}" for event in events]
    lines += [f"{name}: the pool has no such group or trajectory" for name in unknown]
    verb = "would be" if dry_run else "are"
    lines.append(f"{len(events)} trajectories {verb} evicted" if events else "nothing is evicted")
    return Answer({**summary, "events": [as_plain(event) for event in events]}, lines, 0 if events else 1)

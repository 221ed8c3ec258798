"""`claw pool evict`: groups and trajectories erased from the pool by an operator, as facts on claw.calls."""

from collections.abc import Sequence

from claw_r1.claw.answers import Answer
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.pool.append import append
from claw_r1.claw.pool.reading import open_pool
from claw_r1.consumers.pool.event_json import as_plain
from claw_r1.consumers.pool.eviction import evictions, rows_of
from claw_r1.schemas.envelopes import new_id
from claw_r1.schemas.topics import CALLS, GROUPS, TRAJECTORIES

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
    """Evicts the groups and trajectories of the ids; exit code 1 when an id is unknown, or everything is evicted already.

    Raises CannotRun, PoolRefusal.
    """
    if not why.strip():
        raise CannotRun("why? --why TEXT: the facts keep the reason")
    if not who:
        raise CannotRun("who evicts? --who NAME")
    with open_pool(prefix, topics=[TRAJECTORIES, GROUPS]) as pool:
        rows_by_id = pool.view.ask(lambda rows: rows_of([*rows.group_rows(), *rows.trajectory_rows()], ids, group))
        eviction_id = new_id()
        act = evictions(rows_by_id, why=why, who=who, producer=PRODUCER, act_id=eviction_id)
        if not dry_run:
            append(pool.settings, CALLS, act.events)
    groups, count = len(act.groups), len(act.trajectories)
    summary = {"eviction_id": eviction_id, "groups": groups, "trajectories": count, "dry_run": dry_run}
    lines = [f"{group_id} as a whole, with what may come for it yet" for group_id in act.groups]
    lines += ["/".join(place) for place in act.trajectories]
    lines += [f"{name}: the pool has no such group or trajectory" for name in act.unknown]
    verb = "would be evicted" if dry_run else "evicted"
    lines.append(f"{verb}: groups {groups}, trajectories {count}" if act.events else "nothing is evicted")
    return Answer(
        {**summary, "unknown": act.unknown, "events": [as_plain(event) for event in act.events]},
        lines,
        0 if act.events else 1,
    )

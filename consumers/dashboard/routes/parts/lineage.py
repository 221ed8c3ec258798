"""Lineage both ways: call, batch, version, next calls. The words of `claw lineage`."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from claw_r1.consumers.dashboard.plans import plans_at
from claw_r1.consumers.dashboard.routes.parameters import Source
from claw_r1.consumers.dashboard.source import DashboardSource, RunsState
from claw_r1.consumers.lineage.answer import of_data, of_version
from claw_r1.consumers.lineage.trace import data_trace, last_batch, version_trace
from claw_r1.consumers.web.problems import SafeJson
from claw_r1.consumers.web.sessions import Watching
from claw_r1.datapool.runs import Run, RunsById, trained_us
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.listing.query import find_trajectories
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.eventlog.records import Position
from claw_r1.schemas.json_values import JsonDict

PLANS_MAX = 20
"""Read for one answer; of an id that more batches name, the others are counted."""
STEPS_MAX = 500
NEXT_MAX = 500
"""Trajectories of a version number that are looked at, of whatever run."""
NamedVersion = tuple[str, int]
"""run_id, version"""

routes = APIRouter(prefix="/api/v1", tags=["lineage"])


@routes.get(
    "/lineage",
    summary="From a version (RUN/NUMBER) to the calls behind it, and from a call to the versions trained on it.",
)
def lineage(
    source: Source,
    _: Watching,
    name: Annotated[str, Query(alias="id", min_length=1, max_length=1024)],
    limit: Annotated[int, Query(ge=1, le=100)] = 30,
) -> Response:
    """Returns the JSON of `claw lineage --json`; also `trained_us` of each batch, `next`, what the versions that were made
    sampled, and `plans_left_out`."""
    version = _version_named(name)
    answer = None if version is None else _of_version(source, name, version, limit)
    return SafeJson(answer or _of_data(source, name, limit))


def _version_named(name: str) -> NamedVersion | None:
    run_id, _slash, number = name.rpartition("/")
    return (run_id, int(number)) if run_id and number.isascii() and number.isdecimal() and len(number) < 19 else None


def _of_version(source: DashboardSource, name: str, version: NamedVersion, limit: int) -> JsonDict | None:
    def question(state: RunsState) -> tuple[RunsById, Position | None]:
        run_id, number = version
        last = last_batch(state.runs, run_id, number)
        return _copied(state, [run_id]), None if last is None else state.plans.get((run_id, last))

    runs, place = source.ask_runs(question)
    _add_plans(source, runs, [] if place is None else [place])
    trace = version_trace(runs, *version)
    if trace is None:
        return None
    answer = of_version(name, trace, source.facts, limit)
    _add_times(answer, runs)
    return {**answer, "next": _next(source, [version], limit), "plans_left_out": 0}


def _of_data(source: DashboardSource, name: str, limit: int) -> JsonDict:
    def question(state: RunsState) -> tuple[RunsById, list[Position]]:
        return _copied(state, state.runs), [
            state.plans[each] for each in state.index.naming(name) if each in state.plans
        ]

    runs, places = source.ask_runs(question)
    _add_plans(source, runs, places[:PLANS_MAX])
    trace = data_trace(runs, name, lambda: source.pool.ask(lambda rows: _pooled(rows, name)))
    answer = of_data(name, trace, source.facts, limit)
    versions = [(each.run_id, each.made_version) for each in trace.batches if each.made_version is not None]
    _add_times(answer, runs)
    return {**answer, "next": _next(source, versions, limit), "plans_left_out": len(places[PLANS_MAX:])}


def _add_times(answer: JsonDict, runs: RunsById) -> None:
    """Returns the training time of each batch; null if not trained yet."""
    for batch in answer["batches"]:
        trained = runs[batch["run_id"]].trained.get(batch["sequence"])
        batch["trained_us"] = None if trained is None else trained_us(trained)


def _copied(state: RunsState, names: Iterable[str]) -> RunsById:
    """Returns what is known of these runs now, without plans."""
    runs = [(name, state.runs[name]) for name in names if name in state.runs]
    return {
        name: Run(name, trained={**run.trained}, published={**run.published}, skipped={**run.skipped})
        for name, run in runs
    }


def _add_plans(source: DashboardSource, runs: RunsById, places: Sequence[Position]) -> None:
    for plan in plans_at(source, places):
        runs.setdefault(plan.run_id, Run(plan.run_id)).plans[plan.sequence] = plan  # a run may have planned and no more


def _pooled(rows: PoolRows, name: str) -> list[tuple[str, ...]]:
    return [ids for ids, _ in rows.store.named([name], STEPS_MAX)]


def _next(source: DashboardSource, versions: Sequence[NamedVersion], limit: int) -> list[JsonDict]:
    """Trajectories partly sampled by these versions: the result of the training."""

    def question(rows: PoolRows) -> list[JsonDict]:
        return [
            {
                "group_id": row.group_id,
                "trajectory_id": row.trajectory_id,
                "by": f"{run_id}/{version}",
                "return": row.return_total,
                "changed_us": row.last_progress_us,
            }
            for run_id, version in versions
            for row in find_trajectories(rows, PoolFilter(version_min=version, version_max=version), (), NEXT_MAX)
            if row.policy_run_id == run_id
        ][:limit]

    return source.pool.ask(question)

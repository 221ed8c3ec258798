"""The overview: one run, its share of the pool, workers, and faults."""

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request, Response

from claw_r1.consumers.dashboard.overview.alarms import alarms
from claw_r1.consumers.dashboard.overview.log_state import LogState
from claw_r1.consumers.dashboard.overview.run_standing import spec_of, standing, waiting
from claw_r1.consumers.dashboard.overview.tally import matching, tally
from claw_r1.consumers.dashboard.routes.operations import letters_waiting
from claw_r1.consumers.dashboard.routes.parameters import Source
from claw_r1.consumers.dashboard.source import DashboardSource, RunsState
from claw_r1.consumers.dashboard.workers import worker_rows
from claw_r1.consumers.runs.summary import row
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Watching
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.http import Channel
from claw_r1.schemas.json_values import JsonDict

ALL = "*"
RUNS_MAX = 20
WORKERS_MAX = 200
LOG_FRESH_S = 3.0
routes = APIRouter(prefix="/api/v1", tags=["overview"])


@routes.get("/overview", summary="One run: what is where between a call and new weights, and what is wrong.")
def overview(
    source: Source,
    _: Watching,
    run: Annotated[str | None, Query(max_length=512, description="default: what wrote last; *: all runs")] = None,
) -> Response:
    """Kept for a second: `again_s` says when asking again is worth it."""
    return SafeJson(source.kept.answer(("overview", run), lambda: _overview(source, run)))


@routes.get("/overview/log", summary="How far streams are behind the facts, and how many dead letters wait.")
def log_state(source: Source, request: Request, _: Watching) -> Response:
    """Asks the broker, every three seconds at most."""
    state: LogState = request.app.state.log_state
    return SafeJson(source.kept.answer("overview/log", lambda: state.answer(letters_waiting(source)), LOG_FRESH_S))


def _overview(source: DashboardSource, run_id: str | None) -> JsonDict:
    moment = now_us()
    caught_up = source.has_read_all
    runs, workers, observed, settled, spec = source.ask_runs(lambda state: _of_runs(state, run_id, moment))
    pool, waits = source.pool.ask(lambda rows: _of_pool(rows, observed, settled, spec, moment))
    current = observed and {**observed, "waiting": waits}
    return {
        "now_us": moment,
        "caught_up": caught_up,
        "pool": pool,
        "run": current,
        "runs": runs,
        "workers": workers[:WORKERS_MAX],
        "alarms": list(
            alarms(
                pool,
                current,
                workers,
                runs=len(runs),
                caught_up=caught_up,
                now_us=moment,
            )
        ),
    }


def _of_runs(
    state: RunsState, run_id: str | None, moment: int
) -> tuple[list[JsonDict], list[JsonDict], JsonDict | None, set[str], BatchSpec | None]:
    """Rows of runs and workers, how one run stands, the groups that it settled, and its spec."""
    by_time = sorted(state.runs.values(), key=lambda each: each.seen_us, reverse=True)
    if run_id not in (None, ALL) and run_id not in state.runs:
        raise PageProblem(404, f"the log has no run {run_id}; `claw runs list` names those it has")
    run = next(iter(by_time), None) if run_id is None else state.runs.get(run_id)
    workers = worker_rows(state, moment)
    rows = [row(each, moment) for each in by_time[:RUNS_MAX]]
    if run is None:
        return rows, workers, None, set(), None
    return rows, workers, standing(state, run, moment), set(run.settled), spec_of(run)


def _of_pool(
    rows: PoolRows, run: JsonDict | None, settled: set[str], spec: BatchSpec | None, moment: int
) -> tuple[JsonDict, JsonDict]:
    """The tally, and why the ready groups wait that the run has not settled."""
    tables = rows.tables
    run_id: str | None = run["run"] if run else None
    policy = tables.trajectories.holding("policy_run", [run_id]).any()
    if run_id and policy and not matching(tables, "trajectories", {"run": run_id}).any():
        run_id = None  # its agents know no run: what there is may be its
    channel = spec.channel if spec else Channel.TRAIN
    ready = matching(tables, "groups", {"channel": channel, "ready": True, **({"run": run_id} if run_id else {})})
    numbers = np.flatnonzero(ready)
    newest_first = numbers[np.argsort(-tables.groups.values("changed")[numbers], kind="stable")].tolist()
    groups = [group_id for (group_id,) in map(tables.groups.ids, newest_first) if group_id not in settled]
    version = (run and run["version"]) or 0
    numbers_of = tally(tables, run_id, channel, moment) | {"of_all": run_id is None}
    return numbers_of, waiting(rows, groups, run["run"] if run else "", version, spec)

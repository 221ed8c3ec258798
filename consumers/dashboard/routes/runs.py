"""Runs and their curves. The words of `claw runs`."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated

from fastapi import APIRouter, Query, Response

from claw_r1.consumers.dashboard.routes.parameters import Limit, Source
from claw_r1.consumers.dashboard.source import RunsState
from claw_r1.consumers.runs.summary import row, whole
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Watching
from claw_r1.datapool.runs import Run, trained_us
from claw_r1.schemas.envelopes import now_us
from claw_r1.schemas.json_values import JsonDict

RUNS_MAX = 8
METRICS_MAX = 1000
"""Names of metrics in one address; without a name all come."""

routes = APIRouter(prefix="/api/v1", tags=["runs"])
RunIdQuery = Annotated[str, Query(alias="run", min_length=1, max_length=512, description="run_id")]
RunIds = Annotated[list[str], Query(alias="run", min_length=1, max_length=RUNS_MAX, description="run_id; repeated")]
After = Annotated[int, Query(ge=0, description="rows to pass over")]


@routes.get("/runs", summary="All runs, the one that wrote last first, and the names of all their metrics.")
def list_runs(source: Source, _: Watching, limit: Limit = 200, after: After = 0) -> Response:
    """Returns the JSON of `claw runs list --json`."""
    now = now_us()

    def question(state: RunsState) -> JsonDict:
        runs = sorted(state.runs.values(), key=lambda run: (-run.seen_us, run.run_id))
        metrics = sorted({name for run in runs for batch in run.trained.values() for name in batch.metrics})
        return {
            "runs": [row(run, now) for run in runs[after : after + limit]],
            "total": len(runs),
            "metrics": metrics,
        }

    return SafeJson(source.ask_runs(question))


@routes.get("/runs/whole", summary="One run: settings, versions, evaluations, what it skipped, its curve summed up.")
def whole_run(source: Source, _: Watching, run_id: RunIdQuery) -> Response:
    """Returns the JSON of `claw runs show --json`."""
    return SafeJson(source.ask_runs(lambda state: whole(_run(state, run_id), now_us())))


@routes.get("/runs/curves", summary="Metrics of runs, batch by batch; of many batches every k-th.")
def curves(
    source: Source,
    _: Watching,
    run_ids: RunIds,
    metric: Annotated[list[str] | None, Query(max_length=METRICS_MAX)] = None,
    points: Annotated[int, Query(ge=2, le=2000)] = 500,
) -> Response:
    """metric: those that are meant; none: all."""
    return SafeJson(
        source.ask_runs(lambda state: {"runs": [_curves(_run(state, each), metric, points) for each in run_ids]})
    )


@routes.get("/runs/skipped", summary="Groups that a run will never train, and why.")
def skipped(source: Source, _: Watching, run_id: RunIdQuery, limit: Limit = 100, after: After = 0) -> Response:
    """In order of group_id."""

    def question(state: RunsState) -> JsonDict:
        groups = sorted(_run(state, run_id).skipped.items())
        page = groups[after : after + limit]
        return {"total": len(groups), "groups": [{"group_id": name, "reason": reason} for name, reason in page]}

    return SafeJson(source.ask_runs(question))


def _run(state: RunsState, run_id: str) -> Run:
    run = state.runs.get(run_id)
    if run is None:
        raise PageProblem(404, f"the log has no run {run_id}: /api/v1/runs lists them")
    return run


def _curves(run: Run, metrics: Sequence[str] | None, points: int) -> JsonDict:
    """Columns of equal length, one value per batch; null where a batch has none. `every`: one of so many is kept."""
    batches = run.batches
    every = max(1, -(-len(batches) // points))
    tokens = list(accumulate(batch.metrics.get("trained_tokens", 0.0) for batch in batches))
    chosen = [*range(0, len(batches), every)]
    if chosen and chosen[-1] != len(batches) - 1:
        chosen.append(len(batches) - 1)
    names = metrics or sorted({name for batch in batches for name in batch.metrics})
    return {
        "run": run.run_id,
        "every": every,
        "batches": len(batches),
        "started_us": run.started_us,
        "batch": [batches[n].sequence for n in chosen],
        "version": [batches[n].version for n in chosen],
        "at_us": [trained_us(batches[n]) for n in chosen],
        "tokens": [tokens[n] for n in chosen],
        "metrics": {name: [batches[n].metrics.get(name) for n in chosen] for name in names},
    }

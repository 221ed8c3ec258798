"""A batch by its address: its frozen plan, its members' phases of waiting, the ends of their replies."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from claw_r1.consumers.dashboard.batch import anatomy
from claw_r1.consumers.dashboard.plans import plans_at
from claw_r1.consumers.dashboard.routes.parameters import Limit, Source
from claw_r1.consumers.dashboard.routes.runs import After, RunIdQuery
from claw_r1.consumers.dashboard.source import DashboardSource, RunsState
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Watching
from claw_r1.datapool.runs import trained_us
from claw_r1.datapool.view.left_out import why_left_out
from claw_r1.eventlog.records import Position
from claw_r1.schemas.events import BatchAssembled, PlannedTrajectory
from claw_r1.schemas.json_values import JsonDict

REPLIES_MAX = 100

routes = APIRouter(prefix="/api/v1/batch", tags=["batch"])
BatchNumber = Annotated[int, Query(alias="n", ge=0, description="sequence number")]


@routes.get(
    "", summary="A batch opened: tiles, groups, members by |advantage| with their times, why some are not trained."
)
def batch(
    source: Source,
    _: Watching,
    run_id: RunIdQuery,
    sequence: BatchNumber,
    limit: Limit = 100,
    after: After = 0,
) -> Response:
    """`members`: `limit` of them behind the first `after`; `dots`: all, at most 600, in the same order."""
    at, outcome = source.ask_runs(lambda state: _place(state, run_id, sequence))
    (plan,) = plans_at(source, [at])
    ordered = anatomy.by_advantage(plan)
    page = ordered[after : after + limit]
    why_not = source.ask_runs(lambda state: [_why(state, plan, each) for each in page])
    members = source.pool.ask(lambda rows: [anatomy.member(rows, each) for each in page])
    groups = anatomy.groups(plan)
    return SafeJson({
        "run_id": run_id,
        "sequence": sequence,
        "version": plan.version,
        "oldest_version": plan.oldest_version,
        "seed": plan.seed,
        "position": {"topic": at.topic, "partition": at.partition, "offset": at.offset},
        "planned_us": plan.envelope.occurred_at_us,
        **outcome,
        "tiles": anatomy.tiles(plan),
        "sampled_by": anatomy.samplers(plan),
        "groups": groups[: anatomy.GROUPS_MAX],
        "groups_total": len(groups),
        "dots": anatomy.dots(ordered),
        "total": len(ordered),
        "members": [row | {"why_not": why} for row, why in zip(members, why_not, strict=True)],
    })  # fmt: skip


@routes.get("/replies", summary="How the last reply of each of these members ends.")
def replies(
    source: Source,
    _: Watching,
    run_id: RunIdQuery,
    sequence: BatchNumber,
    limit: Annotated[int, Query(ge=1, le=REPLIES_MAX)] = REPLIES_MAX,
    after: After = 0,
) -> Response:
    """In the order of `/batch`; null where retention removed the call, or it has no text."""
    page = anatomy.by_advantage(plan_of(source, run_id, sequence))[after : after + limit]
    places = [Position.of(each.steps[-1].position) if each.steps else None for each in page]
    texts = source.endings([at for at in places if at is not None])
    return SafeJson({"replies": [None if at is None else texts.get(at) for at in places]})


def plan_of(source: DashboardSource, run_id: str, sequence: int) -> BatchAssembled:
    """Raises PageProblem where there is no such plan any more, LogError."""
    at, _outcome = source.ask_runs(lambda state: _place(state, run_id, sequence))
    (plan,) = plans_at(source, [at])
    return plan


def _place(state: RunsState, run_id: str, sequence: int) -> tuple[Position, JsonDict]:
    """Returns the plan's place, its result, and the batches beside it."""
    run = state.runs.get(run_id)
    if run is None:
        raise PageProblem(404, f"the log has no run {run_id}: /api/v1/runs lists them")
    at = state.plans.get((run_id, sequence))
    if at is None:
        raise PageProblem(404, f"run {run_id} has no batch {sequence}: it has planned {_planned(state, run_id)}")
    trained = run.trained.get(sequence)
    beside = {"previous": sequence - 1, "next": sequence + 1}
    return at, {
        "trained": trained
        and {"version": trained.version, "at_us": trained_us(trained), "metrics": dict(trained.metrics)},
        "given_up": sequence in run.given_up,
        **{name: other if (run_id, other) in state.plans else None for name, other in beside.items()},
    }


def _planned(state: RunsState, run_id: str) -> str:
    sequences = [sequence for name, sequence in state.plans if name == run_id]
    return f"{min(sequences)} to {max(sequences)}" if sequences else "none yet"


def _why(state: RunsState, plan: BatchAssembled, planned: PlannedTrajectory) -> str | None:
    batches = state.index.planned(planned.group_id)
    place = plan.run_id, plan.sequence
    for each in batches:
        if (each.run_id, each.sequence) == place:
            return why_left_out(each, planned.trajectory_id)
    return "the batch was given up"

"""Batch lab: the batch of a spec now, beside that of the run's own, as in `claw pool batch --json`."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Response

from claw_r1.consumers.dashboard.batch.drawn_rows import drawn
from claw_r1.consumers.dashboard.batch.earlier import runs_before
from claw_r1.consumers.dashboard.routes.batch import plan_of
from claw_r1.consumers.dashboard.routes.parameters import Limit, Source
from claw_r1.consumers.dashboard.source import DashboardSource, RunsState
from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.consumers.pool.perspective import perspective_of
from claw_r1.consumers.pool.spec_fields import knobs
from claw_r1.consumers.web.problems import SafeJson
from claw_r1.consumers.web.sessions import Watching
from claw_r1.datapool.batch.spec import PRESETS, BatchSpec, of_text
from claw_r1.datapool.view.preview import Look, Moment, Preview, previewed
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.why import Perspective
from claw_r1.schemas.events import BatchAssembled
from claw_r1.schemas.json_values import JsonDict

TRAJECTORIES_MAX = 1000
"""Looked at for one preview, in the spec's order: with more the page would wait, and all others with it."""
SPEC_CHARACTERS_MAX = 20_000
NO_SPEC = "No run has a spec yet. Begin with a preset, or write one."

routes = APIRouter(prefix="/api/v1/lab", tags=["batch lab"])
SpecText = Annotated[
    str | None, Query(max_length=SPEC_CHARACTERS_MAX, description="YAML or JSON of a batch spec; none: the run's own")
]
RunIdOption = Annotated[
    str | None, Query(max_length=512, description="run that would train; none: the one heard of last")
]


@routes.get("/fields", summary="Every field of a batch spec with what it takes and does, and the presets.")
def fields(_: Watching) -> Response:
    """Knobs: as `claw pool batch --explain --json` has them."""
    return SafeJson({"knobs": knobs(), "presets": PRESETS})


@routes.get(
    "/preview",
    summary="What a spec would train now, why each other group is left out, and what differs from the run's own.",
)
def preview(
    source: Source,
    _: Watching,
    spec: SpecText = None,
    run: RunIdOption = None,
    version: Annotated[int | None, Query(ge=0)] = None,
    batch: Annotated[int | None, Query(ge=0, description="of the run: as of its plan, what came later is free")] = None,
    limit: Limit = 200,
) -> Response:
    """`preview` is the answer of `claw pool batch --json`, with `left_out` and `chosen` cut after `limit` groups each.
    Null where no run has a spec yet; `problem` then says what to do."""
    chosen = of_text(spec) if spec is not None else None
    plan = plan_of(source, run or "", batch) if batch is not None else None

    def question(rows: PoolRows, state: RunsState) -> tuple[Perspective | None, Perspective | None]:
        if plan is not None:
            own = Perspective(run_id=plan.run_id, version=plan.version, spec=of_text(plan.spec))
            return replace(own, spec=chosen or own.spec), own
        perspective = perspective_of(rows, state.index, chosen, run_id=run or planned_last(state), version=version)
        return perspective, perspective and _own(rows, state, perspective)

    perspective, own = source.ask_both(question)
    if perspective is None:
        return SafeJson({"problem": NO_SPEC, "spec": {}, "preview": None, "rows": [], "own": None, "differences": None})
    this = _previewed(source, perspective, plan)
    whole, others = this.answer, None
    if own is not None:
        others = whole if own == perspective else _previewed(source, own, plan).answer
    return SafeJson({
        "problem": None,
        "spec": _set(perspective.spec),
        "preview": _cut(whole, limit),
        "trajectories_max": TRAJECTORIES_MAX,
        "rows": drawn(this),
        "own": None if own is None or others is None else {"spec": _set(own.spec), "preview": _cut(others, limit)},
        "differences": _differences(others, whole, limit) if others else None,
    })  # fmt: skip


def planned_last(state: RunsState) -> str | None:
    """Returns the run that was heard of last, or where that has planned nothing yet the newest one that has."""
    latest = state.runs.get(state.index.latest or "")
    planned = [run for run in state.runs.values() if run.spec]
    if (latest is not None and latest.spec) or not planned:
        return state.index.latest
    return max(planned, key=lambda run: run.seen_us).run_id


def _previewed(source: DashboardSource, perspective: Perspective, plan: BatchAssembled | None) -> Preview:
    """plan: as of this batch."""

    def ask(look: Look) -> Moment:
        def earlier(rows: PoolRows, state: RunsState) -> Moment:
            return look(rows, state.index if plan is None else runs_before(rows, state.index, plan))

        return source.ask_both(earlier)

    return previewed(ask, source.facts, perspective, TRAJECTORIES_MAX)


def _own(rows: PoolRows, state: RunsState, perspective: Perspective) -> Perspective | None:
    """The same run and version with the spec of the run's newest plan; None: it has planned nothing, or with another version's spec."""
    try:
        return perspective_of(rows, state.index, None, run_id=perspective.run_id, version=perspective.version)
    except PoolRefusal:
        return None


def _set(spec: BatchSpec) -> JsonDict:
    """The fields in which it differs from a spec that says nothing."""
    fields_set: JsonDict = spec.model_dump(mode="json", exclude_defaults=True)
    return fields_set


def _cut(whole: JsonDict, limit: int) -> JsonDict:
    """The preview with so many groups at most in each list, and how many there are."""
    left_out = whole["left_out"]
    return {
        **whole,
        "chosen": whole["chosen"][:limit],
        "left_out": dict(list(left_out.items())[:limit]),
        "left_out_groups": len(left_out),
    }


def _differences(own: JsonDict, other: JsonDict, limit: int) -> JsonDict:
    """Groups on which the two differ. Per group: the own spec's reason, the other's; null: it is in the batch."""
    sides = [{**side["left_out"], **dict.fromkeys(side["chosen"])} for side in (own, other)]
    differing = [
        {"group_id": name, "own": sides[0].get(name, NOT_LOOKED_AT), "this": sides[1].get(name, NOT_LOOKED_AT)}
        for name in sorted(sides[0].keys() | sides[1].keys())
        if sides[0].get(name, NOT_LOOKED_AT) != sides[1].get(name, NOT_LOOKED_AT)
    ]
    moved = sorted(differing, key=lambda row: None not in (row["own"], row["this"]))  # into or out of the batch first
    return {"groups": moved[:limit], "total": len(moved)}


NOT_LOOKED_AT = "not_looked_at"

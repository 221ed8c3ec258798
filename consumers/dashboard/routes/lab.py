"""Batch lab: what a spec would train now, beside the run's own, as `claw pool batch --json` says it."""

import json
from typing import Annotated

from fastapi import APIRouter, Query, Response

from claw_r1.consumers.dashboard.batch_rows import drawn
from claw_r1.consumers.dashboard.routes.source import Limit, Source
from claw_r1.consumers.dashboard.source import DashboardSource, RunsState
from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.consumers.pool.knobs import knobs
from claw_r1.consumers.pool.perspective import perspective_of
from claw_r1.consumers.web.problems import SafeJson
from claw_r1.consumers.web.sessions import Watching
from claw_r1.datapool.batch.spec import PRESETS, BatchSpec, fields_of, of_text
from claw_r1.datapool.errors import BatchSpecInvalid
from claw_r1.datapool.view.preview import Look, Moment, Preview, previewed
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.why import Perspective
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


@routes.get("/fields", summary="Every field of a batch spec with what it takes and does; the presets; the JSON schema.")
def fields(_: Watching) -> Response:
    """Returns the JSON of `claw pool batch --explain --json`."""
    return SafeJson({"knobs": knobs(), "presets": PRESETS, "schema": BatchSpec.model_json_schema()})


@routes.get("/read", summary="What a spec's text sets, field by field, and what is wrong with it.")
def read(spec: Annotated[str, Query(max_length=SPEC_CHARACTERS_MAX)], _: Watching) -> Response:
    """`fields`: null where the text is no mapping of plain values. `problem`: null where it is a spec."""
    try:
        of_text(spec)
        problem = None
    except BatchSpecInvalid as error:
        problem = str(error)
    try:
        raw = fields_of(spec)
        json.dumps(raw, allow_nan=False)  # a number that JSON has not is left to the text: null would unset the field
        return SafeJson({"fields": raw if isinstance(raw, dict) else None, "problem": problem})
    except (BatchSpecInvalid, TypeError, ValueError):  # the last two: a date, or no number
        return SafeJson({"fields": None, "problem": problem})


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
    limit: Limit = 200,
) -> Response:
    """`preview` is the answer of `claw pool batch --json`, with `left_out` and `chosen` cut after `limit` groups each.
    Null where no run has a spec yet; `problem` then says what to do."""
    chosen = of_text(spec) if spec is not None else None

    def question(rows: PoolRows, state: RunsState) -> tuple[Perspective | None, Perspective | None]:
        perspective = perspective_of(rows, state.index, chosen, run_id=run, version=version)
        return perspective, perspective and _own(rows, state, perspective)

    perspective, own = source.ask_both(question)
    if perspective is None:
        return SafeJson({"problem": NO_SPEC, "spec": {}, "preview": None, "rows": [], "own": None, "differences": None})
    this = _previewed(source, perspective)
    whole, others = this.answer, None
    if own is not None:
        others = whole if own == perspective else _previewed(source, own).answer
    return SafeJson({
        "problem": None,
        "spec": _set(perspective.spec),
        "preview": _cut(whole, limit),
        "trajectories_max": TRAJECTORIES_MAX,
        "rows": drawn(this),
        "own": None if own is None or others is None else {"spec": _set(own.spec), "preview": _cut(others, limit)},
        "differences": _differences(others, whole, limit) if others else None,
    })  # fmt: skip


def _previewed(source: DashboardSource, perspective: Perspective) -> Preview:
    def ask(look: Look) -> Moment:
        return source.ask_both(lambda rows, state: look(rows, state.index))

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
    """Groups of which the two say different things. Per group: the own spec's word, the other's; null: it is in the batch."""
    sides = [{**side["left_out"], **dict.fromkeys(side["chosen"])} for side in (own, other)]
    differing = [
        {"group_id": name, "own": sides[0].get(name, NOT_LOOKED_AT), "this": sides[1].get(name, NOT_LOOKED_AT)}
        for name in sorted(sides[0].keys() | sides[1].keys())
        if sides[0].get(name, NOT_LOOKED_AT) != sides[1].get(name, NOT_LOOKED_AT)
    ]
    moved = sorted(differing, key=lambda row: None not in (row["own"], row["this"]))  # into or out of the batch first
    return {"groups": moved[:limit], "total": len(moved)}


NOT_LOOKED_AT = "not_looked_at"

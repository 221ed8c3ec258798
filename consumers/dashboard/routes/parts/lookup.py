"""Everything that an id names: a call, a trajectory, a group, a run, a version of it, a batch of it."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Response

from claw_r1.consumers.dashboard.routes.parameters import Source
from claw_r1.consumers.dashboard.source import RunsState
from claw_r1.consumers.web.problems import SafeJson
from claw_r1.consumers.web.sessions import Looking
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.keys import parts

NAMED_MAX = 20
routes = APIRouter(prefix="/api/v1", tags=["named"])


@routes.get("/named", summary="Views that an id of any kind, or a key as lists print it, names.")
def named(source: Source, _: Looking, q: Annotated[str, Query(min_length=1, max_length=4096)]) -> Response:
    """The first 20. A version is RUN/NUMBER, a batch RUN#NUMBER; a run alone leads to its curves."""
    name = q.strip()
    views = source.ask_both(lambda rows, runs: [*_of_runs(runs, name), *_of_pool(rows, name)])
    return SafeJson({"views": views[:NAMED_MAX], "total": len(views)})


def _of_runs(state: RunsState, name: str) -> Iterator[JsonDict]:
    if name in state.runs:
        yield {"kind": "run", "view": "runs", "values": {"run": name}}
    for sign in "/#":
        run_id, _, number = name.rpartition(sign)
        run = state.runs.get(run_id) if number.isdecimal() and len(number) < 10 else None
        if run is None:
            continue
        if sign == "#" and (run_id, int(number)) in state.plans:
            yield {"kind": "batch", "view": "batch", "values": {"run": run_id, "n": int(number)}}
        versions = {batch.version for batch in run.trained.values()}
        if sign == "/" and int(number) in run.published.keys() | versions:
            yield {"kind": "version", "view": "runs", "values": {"lineage": name}}


def _of_pool(rows: PoolRows, name: str) -> Iterator[JsonDict]:
    """Rows of that id, or of that key: GROUP, GROUP/TRAJECTORY, GROUP/TRAJECTORY/CALL."""
    tables = rows.tables
    groups = tables.groups.number_of((name,))
    places = [tables.groups.ids(groups)] if groups >= 0 and tables.groups.has(groups) else []
    for table in (tables.trajectories, tables.steps):
        numbers = [
            *table.ending_with(name),
            *(table.number_of(key) for key in _keys(name, of_call=table is tables.steps)),
        ]
        places += [table.ids(number) for number in dict.fromkeys(numbers) if number >= 0 and table.has(number)]
    for ids in places:
        kind, view = [("group", "group"), ("trajectory", "trajectory"), ("call", "trajectory")][len(ids) - 1]
        yield {"kind": kind, "view": view, "values": dict(zip("gtc", ids, strict=False))}


def _keys(name: str, *, of_call: bool) -> Iterator[tuple[str, ...]]:
    """The ids that a key may mean: as it is printed, or with its ids as they are."""
    length = 3 if of_call else 2
    if name.count("/") == length - 1:
        yield tuple(name.split("/"))
        if name.isascii():
            yield parts(name.encode())

"""Lists of groups, trajectories and steps: in an order that stands still, with counts per value, and a search
in conversations."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Annotated, Any, Literal, TypeVar
from uuid import uuid4

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from claw_r1.consumers.dashboard.routes.parameters import Source
from claw_r1.consumers.dashboard.source import DashboardSource
from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.consumers.pool.filter_query import FilterQuery
from claw_r1.consumers.pool.listing import find, ids_of_key, key_text
from claw_r1.consumers.pool.reasons import sentence_of
from claw_r1.consumers.pool.text import Conversations
from claw_r1.consumers.web.problems import PageProblem, SafeJson
from claw_r1.consumers.web.sessions import Looking
from claw_r1.datapool.view.listing import pages, query
from claw_r1.datapool.view.listing.columns import COLUMNS, TIME, RowKind, column
from claw_r1.datapool.view.listing.frozen_order import FrozenOrder
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.records import PooledRow
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.protocols import Lookup
from claw_r1.eventlog.records import Position
from claw_r1.schemas.events import StepRecord, TrajectoryRecord
from claw_r1.schemas.json_values import JsonDict

routes = APIRouter(prefix="/api/v1", tags=["explorer"])
ORDERS_MAX = 32
FACETS: dict[RowKind, tuple[str, ...]] = {
    "groups": ("run", "channel", "ready", "reasons", "task", "tags"),
    "trajectories": ("run", "channel", "status", "ready", "reasons", "finish", "task", "agent", "tags"),
    "steps": ("run", "channel", "trainable", "reasons", "finish", "status", "task", "agent", "tags"),
}
FIELDS = {"reasons": "reason", "tags": "tag"}
"""Columns whose filter has another name."""
VALUES_MAX = 30
"""The most values of one facet, the most frequent first."""
ENDINGS_MAX = 60
SEARCH_S = 3.0
"""For so long one answer looks through conversations."""
SEARCH_ROWS = 50
"""Rows that a search takes from the pool at once, and rows that one answer names."""
SEARCH_CALLS = 1_000
"""The most calls of a trajectory that are searched: all its requests are put together before the first is looked
through, however long that takes."""
NAMES: dict[RowKind, tuple[str, ...]] = {"groups": ("g",), "trajectories": ("g", "t"), "steps": ("g", "t", "c")}
T = TypeVar("T")


class ListQuery(FilterQuery):
    """The rows to list, and their order."""

    kind: RowKind = "trajectories"
    sort: str | None = None
    """A column of /columns; default: what changed last comes first."""
    desc: bool = False

    def order(self) -> tuple[RowKind, PoolFilter, str, bool]:
        """Kind, filter, column and whether the largest comes first. Raises PageProblem."""
        try:
            sort = self.sort or TIME[self.kind]
            column(self.kind, sort)
            return self.kind, self.filter(), sort, self.desc or self.sort is None
        except ValueError as error:
            raise PageProblem(422, str(error)) from error


class RowsQuery(ListQuery):
    """The part of a list to return."""

    columns: str = Field(default="", max_length=2000)
    """Names of /columns, with commas between; default: all."""
    order_id: str | None = Field(default=None, alias="order", max_length=64)
    """`order` of an earlier answer to the same filter: the rows stand as they stood then."""
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=100, ge=1, le=500)
    at: str | None = Field(default=None, max_length=16_384)
    """A row's key, as rows have it: `place` says where it stands."""


class PlaceQuery(ListQuery):
    """Beside which row."""

    g: str = Field(min_length=1, max_length=512)
    t: str | None = Field(default=None, max_length=512)
    c: str | None = Field(default=None, max_length=512)


class SearchQuery(ListQuery):
    """The position from which a search goes on."""

    after: str | None = Field(default=None, max_length=16_384)


class FrozenOrders:
    """The orders that open pages read in, the last used ones. Safe from any thread."""

    def __init__(self) -> None:
        self._orders: OrderedDict[str, tuple[object, FrozenOrder]] = OrderedDict()
        self._lock = threading.Lock()
        self._names = (f"{uuid4().hex[:8]}.{number}" for number in count())

    def get(
        self, name: str | None, question: tuple[RowKind, PoolFilter, str, bool], rows: PoolRows
    ) -> tuple[str, FrozenOrder]:
        """The order of that name and its name; another one where there is none, or it answers another question."""
        with self._lock:
            if name is not None and self._orders.get(name, (None,))[0] == question:
                self._orders.move_to_end(name)
                return name, self._orders[name][1]
        kind, pool_filter, sort, descending = question
        order = FrozenOrder(rows, kind, pool_filter, sort=sort, descending=descending)
        with self._lock:
            fresh = next(self._names)
            self._orders[fresh] = question, order
            while len(self._orders) > ORDERS_MAX:
                self._orders.popitem(last=False)
        return fresh, order


async def _orders(request: Request) -> FrozenOrders:
    orders: FrozenOrders = request.app.state.orders
    return orders


OpenOrders = Annotated[FrozenOrders, Depends(_orders)]


@routes.get("/columns", summary="Which columns the lists of groups, trajectories and steps have.")
def columns(_: Looking) -> Response:
    """By kind and name: its type, and what it says."""
    return SafeJson({
        kind: {name: {"type": each.type, "says": each.says} for name, each in named.items()} for kind, named in COLUMNS.items()
    })  # fmt: skip


@routes.get("/rows", summary="Part of a list of the pool: by any filter of `claw pool`, sorted by any column.")
def rows(source: Source, _: Looking, orders: OpenOrders, which: Annotated[RowsQuery, Query()]) -> Response:
    """`order`: named again, the rows stand where they stood, each as it is now; `new` counts those that came to the filter since.

    A row without `values` is gone."""
    question = which.order()
    columns = which.columns.split(",") if which.columns else COLUMNS[question[0]]
    names = [name for name in columns if name not in ("", "id")]  # each row has its ids beside its columns
    ids = _place(question[0], which.at)

    def answer(pool: PoolRows) -> JsonDict:
        name, order = orders.get(which.order_id, question, pool)
        page = order.rows(pool, which.offset, which.limit, names)
        return {
            "order": name,
            "total": len(order),
            "new": order.new(pool) if name == which.order_id else 0,
            "place": order.index_of(pool, ids) if ids else None,
            "offset": which.offset,
            "rows": [{"key": key_text(row.ids), "ids": row.ids, "values": row.columns} for row in page],
        }

    return SafeJson(_ask(source, answer) | {"kind": question[0], "reading": not source.caught_up})


@routes.get("/endings", summary="How the last reply of trajectories ends, or that of steps.")
def endings(
    source: Source,
    _: Looking,
    key: Annotated[list[str], Query(min_length=1, max_length=ENDINGS_MAX)],
    kind: Literal["trajectories", "steps"] = "trajectories",
) -> Response:
    """By key, as rows have it; nothing of what retention took, or of a reply that says nothing in words."""
    ids = {each: _place(kind, each) for each in key}
    places = source.pool.ask(lambda pool: {each: _last_call(source, kind, pool, ids[each]) for each in key})
    texts = source.endings(list({place for place in places.values() if place is not None}))
    return SafeJson({"endings": {each: texts[place] for each, place in places.items() if place in texts}})


@routes.get("/facets", summary="How many rows of a filter have each value of some columns.")
def facets(source: Source, _: Looking, which: Annotated[ListQuery, Query()]) -> Response:
    """Up to 30 [value, rows] per field, the most frequent first, of time the newest. A field that is filtered is
    counted without its own filter, but for tags, of which several may be given. `says`: what each reason means, and
    what to do."""
    kind, pool_filter, *_order = which.order()

    def answer(pool: PoolRows) -> JsonDict:
        counts: JsonDict = {}
        for name in FACETS[kind]:
            field = FIELDS.get(name, name)
            without = pool_filter if field == "tag" else _without(pool_filter, field)
            counts[field] = list(pages.facets(pool, kind, without, name, VALUES_MAX).items())
        counts["time"] = list(pages.times(pool, kind, _without(pool_filter, "time"), VALUES_MAX).items())
        says = {reason: sentence_of(reason) for reason, _ in counts["reason"]}
        return {"total": pages.count(pool, kind, pool_filter), "facets": counts, "says": says}

    return SafeJson(_ask(source, answer))


@routes.get("/neighbours", summary="Which rows stand before and behind one, within a filter and an order.")
def neighbours(source: Source, _: Looking, which: Annotated[PlaceQuery, Query()]) -> Response:
    """`at`: its place; null: the filter does not find it any more."""
    kind, pool_filter, sort, descending = which.order()
    names = NAMES[kind]
    ids = tuple(getattr(which, name) or "" for name in names)
    if "" in ids:
        raise PageProblem(422, f"a row of {kind} is named by {', '.join(names)}")
    previous, behind, at, total = _ask(
        source, lambda pool: pages.neighbours(pool, kind, ids, pool_filter, sort=sort, descending=descending)
    )
    beside = {"previous": previous, "next": behind}
    return SafeJson(
        {name: place and dict(zip(names, place, strict=True)) for name, place in beside.items()}
        | {"at": at, "count": total}
    )


@routes.get("/conversations", summary="Rows of a filter in whose conversations a text stands, for three seconds.")
def conversations(source: Source, _: Looking, which: Annotated[SearchQuery, Query()]) -> Response:
    """In order of ids. `after` goes on where this answer stopped; null: all that the other filters leave was looked through.

    `lost`: rows whose calls are not in the log any more. `too_long`: trajectories of so many calls that only their ids, tags
    and notes were looked through, the first 50 of them."""
    kind, pool_filter, *_order = which.order()
    if not pool_filter.text:
        raise PageProblem(422, "which text? name it as text=")
    rest = replace(pool_filter, text=None)
    too_long: list[JsonDict] = []

    def answer(after: str | None) -> Response:
        return SafeJson(
            {"matches": matches, "looked": looked, "lost": lost, "after": after, "too_long": too_long[:SEARCH_ROWS]}
        )

    conversations = Conversations(partial(_short_steps, source, too_long), source.facts)
    matches: list[JsonDict] = []
    looked, lost, place, ends = 0, 0, _place(kind, which.after), time.monotonic() + SEARCH_S
    while True:
        chunk = _ask(source, partial(_behind, kind, rest, place, source.facts))
        for row in chunk:
            try:
                holds = any(conversations.say(step, pool_filter.text) for step in source.pool.ask(partial(_steps, row)))
            except HistoryCut:
                holds, lost = False, lost + 1
            ids, looked = _ids(row), looked + 1
            place = tuple(ids.values())
            if holds:
                matches.append(ids)
            if time.monotonic() > ends or len(matches) >= SEARCH_ROWS:
                return answer(key_text(place))
        if len(chunk) < SEARCH_ROWS:
            return answer(None)


def _last_call(source: DashboardSource, kind: RowKind, pool: PoolRows, ids: tuple[str, ...]) -> Position | None:
    (number,) = pool.tables.numbers(kind, [ids]) or (None,)
    row = None if number is None else pool.tables.record(kind, number)
    if isinstance(row, StepRecord):
        return Position.of(row.position) if row.position else None
    return next(reversed(source.positions(row).values()), None) if isinstance(row, TrajectoryRecord) else None


def _without(pool_filter: PoolFilter, field: str) -> PoolFilter:
    empty: dict[str, Any] = {field: None}
    return replace(pool_filter, **empty)


def _short_steps(source: DashboardSource, too_long: list[JsonDict], g: str, t: str) -> list[StepRecord]:
    """The steps of a trajectory; none, and one more name in `too_long`, where they are too many."""
    steps = source.pool.ask(lambda pool: query.steps_of(pool, g, t))
    if len(steps) <= SEARCH_CALLS:
        return steps
    too_long.append({"g": g, "t": t})
    return []


def _behind(kind: RowKind, rest: PoolFilter, place: tuple[str, ...], facts: Lookup, pool: PoolRows) -> list[PooledRow]:
    return find(kind, pool, rest, place, SEARCH_ROWS, facts)


def _place(kind: RowKind, key: str | None) -> tuple[str, ...]:
    """The ids of a row's key. Raises PageProblem."""
    try:
        return ids_of_key(kind, key)
    except (ValueError, PoolRefusal) as error:
        raise PageProblem(422, f"that is no key of {kind}: take one that an answer names") from error


def _ids(row: PooledRow) -> JsonDict:
    names = {"g": "group_id", "t": "trajectory_id", "c": "call_id"}
    return {name: getattr(row, field) for name, field in names.items() if hasattr(row, field)}


def _steps(row: PooledRow, pool: PoolRows) -> list[StepRecord]:
    """Returns the steps of a row."""
    if isinstance(row, StepRecord):
        return [row]
    if isinstance(row, TrajectoryRecord):
        return query.steps_of(pool, row.group_id, row.trajectory_id)
    return query.find_steps(pool, PoolFilter(group=row.group_id))


def _ask(source: DashboardSource, question: Callable[[PoolRows], T]) -> T:
    """Raises PageProblem for what the lists refuse."""
    try:
        return source.pool.ask(question)
    except ValueError as error:
        raise PageProblem(422, str(error)) from error

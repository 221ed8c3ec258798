"""Plans of batches by their position, and answers that hold a trainer's numbers."""

import math
from collections.abc import Iterable
from typing import Any

from fastapi import Response

from consumers.dashboard.source import DashboardSource
from consumers.web.problems import PageProblem, SafeJson
from eventlog.errors import HistoryCut
from eventlog.records import Position, readable
from schemas.events import BatchAssembled


def plans_at(source: DashboardSource, positions: Iterable[Position]) -> list[BatchAssembled]:
    """Raises PageProblem where retention took one, LogError."""
    places = list(positions)
    try:
        records = source.records(places)
    except HistoryCut as cut:
        raise PageProblem(410, f"the plan is not in the log any more ({cut})") from cut
    return [event for event in readable(records[at] for at in places) if isinstance(event, BatchAssembled)]


def finite_json(content: Any) -> Response:  # any JSON value, and numbers that JSON cannot hold
    """A loss may be no number: it is null."""
    return SafeJson(_finite(content))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value

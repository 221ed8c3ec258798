"""Plans of batches by their position."""

from collections.abc import Iterable

from claw_r1.consumers.dashboard.source import DashboardSource
from claw_r1.consumers.web.problems import PageProblem
from claw_r1.eventlog.errors import HistoryCut
from claw_r1.eventlog.records import Position, readable
from claw_r1.schemas.events import BatchAssembled


def plans_at(source: DashboardSource, positions: Iterable[Position]) -> list[BatchAssembled]:
    """Raises PageProblem where retention took one, LogError."""
    places = list(positions)
    try:
        records = source.records(places)
    except HistoryCut as cut:
        raise PageProblem(410, f"the plan is not in the log any more ({cut})") from cut
    return [event for event in readable(records[at] for at in places) if isinstance(event, BatchAssembled)]

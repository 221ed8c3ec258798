"""The parameters that every route of the dashboard takes."""

from typing import Annotated

from fastapi import Depends, Query, Request

from claw_r1.consumers.dashboard.source import DashboardSource
from claw_r1.consumers.web.problems import PageProblem
from claw_r1.schemas.events import TrajectoryRecord


async def _source(request: Request) -> DashboardSource:
    source: DashboardSource = request.app.state.dashboard
    return source


Source = Annotated[DashboardSource, Depends(_source)]
GroupId = Annotated[str, Query(alias="g", min_length=1, max_length=4096, description="group_id")]
TrajectoryIdQuery = Annotated[str, Query(alias="t", min_length=1, max_length=4096, description="trajectory_id")]
Limit = Annotated[int, Query(ge=1, le=500)]
CallIdQuery = Annotated[str, Query(alias="c", min_length=1, max_length=4096, description="call_id")]


def trajectory_of(source: DashboardSource, group_id: str, trajectory_id: str) -> TrajectoryRecord:
    """Its latest row. Raises PageProblem 404 that says what to do."""
    row = source.pool.ask(lambda rows: rows.trajectory(group_id, trajectory_id))
    if row is None:
        reading = "" if source.caught_up else "; the pool is still being read, so it may come"
        raise PageProblem(404, f"the pool has no trajectory {trajectory_id} in group {group_id}{reading}")
    return row

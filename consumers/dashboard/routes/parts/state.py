"""The dashboard's state: how far it has read, of which log, and whether the log answers."""

from fastapi import APIRouter, Response

from claw_r1.consumers.dashboard.routes.parameters import Source
from claw_r1.consumers.web.problems import SafeJson
from claw_r1.consumers.web.sessions import Looking

routes = APIRouter(prefix="/api/v1", tags=["state"])


@routes.get(
    "/state",
    summary="Whether everything that stood in the log at the start was read, of which log, and whether it answers.",
)
def state(source: Source, _: Looking) -> Response:
    """Until `caught_up`, answers grow. log_away_since_us: UTC microseconds; null: it answers."""
    settings = source.log.settings
    caught_up = source.has_read_all
    return SafeJson(
        {
            "caught_up": caught_up,
            "prefix": settings.prefix,
            "generation": settings.generation,
            "log_away_since_us": source.watch.away_since_us,
        }
    )

"""The gauges of a dashboard, for Prometheus: read from its views on each scrape."""

from prometheus_client import CollectorRegistry, Gauge

from claw_r1.consumers.dashboard.source import DashboardSource
from claw_r1.consumers.web.sessions import PageSessions
from claw_r1.runtime.monitoring.registry import process_registry


def registry_of(source: DashboardSource) -> CollectorRegistry:
    """The registry of one dashboard."""
    registry = process_registry()
    readers = Gauge("claw_dashboard_readers", "Open pages that follow changes.", registry=registry)
    readers.set_function(lambda: source.live.readers)
    away = Gauge("claw_dashboard_log_away", "1 while the log does not answer.", registry=registry)
    away.set_function(lambda: float(source.watch.away_since_us is not None))
    caught_up = Gauge("claw_dashboard_caught_up", "1 once the runs were read to their end.", registry=registry)
    caught_up.set_function(lambda: float(source.runs_caught_up))
    return registry


def not_ready(source: DashboardSource) -> str | None:
    """Returns why the pages show an earlier moment, or None."""
    if source.watch.away_since_us is not None:
        return "the log does not answer"
    return None if source.runs_caught_up else "the runs are being read"


def broken(source: DashboardSource, sessions: PageSessions) -> str | None:
    """Returns why pages are refused until another start: a thread that read the log for them has ended."""
    failure = source.failure or sessions.failure
    return None if failure is None else f"reading the log ended ({failure}): start the dashboard again"

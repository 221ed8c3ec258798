"""`python -m claw_r1.consumers.dashboard`: the pool and the runs on a page, until SIGTERM or SIGINT."""

from collections.abc import Callable, Sequence

from claw_r1.consumers.dashboard.settings import DashboardSettings
from claw_r1.consumers.program import run_consumer
from claw_r1.eventlog.settings import LogSettings

ABOUT = "The pool and the runs on a page, live."


def main(argv: Sequence[str] | None = None) -> int:
    """Serves the dashboard under `run_consumer`."""
    return run_consumer("claw dashboard", ABOUT, DashboardSettings, _serve, argv, OSError)


def _serve() -> Callable[[DashboardSettings, LogSettings], None]:
    from claw_r1.consumers.dashboard.app import serve

    return serve


if __name__ == "__main__":
    raise SystemExit(main())

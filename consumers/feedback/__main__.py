"""`python -m claw_r1.consumers.feedback`: the page on which people judge, until SIGTERM or SIGINT."""

from collections.abc import Callable, Sequence

from claw_r1.consumers.feedback.settings import FeedbackPageSettings
from claw_r1.consumers.program import run_consumer
from claw_r1.eventlog.settings import LogSettings

ABOUT = "A page on which people judge what agents did."


def main(argv: Sequence[str] | None = None) -> int:
    """Serves the feedback page under `run_consumer`."""
    return run_consumer("claw feedback", ABOUT, FeedbackPageSettings, _serve, argv)


def _serve() -> Callable[[FeedbackPageSettings, LogSettings], None]:
    from claw_r1.consumers.feedback.app import serve

    return serve


if __name__ == "__main__":
    raise SystemExit(main())

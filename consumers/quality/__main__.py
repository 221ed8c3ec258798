"""`python -m claw_r1.consumers.quality`: score calls until SIGTERM or SIGINT."""

from collections.abc import Callable, Sequence

from claw_r1.consumers.program import run_consumer
from claw_r1.consumers.quality.settings import QualitySettings
from claw_r1.eventlog.settings import LogSettings

ABOUT = "Score captured calls, and write the scores as curations."


def main(argv: Sequence[str] | None = None) -> int:
    """Serves the quality scorers under `run_consumer`."""
    return run_consumer("claw quality", ABOUT, QualitySettings, _serve, argv)


def _serve() -> Callable[[QualitySettings, LogSettings], None]:
    from claw_r1.consumers.quality.app import serve

    return serve


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m consumers.quality`: score calls until SIGTERM or SIGINT."""

from collections.abc import Callable, Sequence

from consumers.program import run_consumer
from consumers.quality.settings import QualitySettings
from eventlog.settings import LogSettings

ABOUT = "Score captured calls, and write the scores as curations."


def main(argv: Sequence[str] | None = None) -> int:
    """As `run_consumer`."""
    return run_consumer("claw quality", ABOUT, QualitySettings, _serve, argv)


def _serve() -> Callable[[QualitySettings, LogSettings], None]:
    from consumers.quality.app import serve

    return serve


if __name__ == "__main__":
    raise SystemExit(main())

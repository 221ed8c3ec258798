"""`python -m claw_r1.consumers.rewards`: score until SIGTERM or SIGINT."""

from collections.abc import Callable, Sequence

from claw_r1.consumers.program import run_consumer
from claw_r1.consumers.rewards.settings import RewardsSettings
from claw_r1.eventlog.settings import LogSettings

ABOUT = "Judge what agents did, and write the verdicts as rewards."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the reward scorers under `run_consumer`."""
    return run_consumer("claw rewards run", ABOUT, RewardsSettings, _serve, argv, OSError)


def _serve() -> Callable[[RewardsSettings, LogSettings], None]:
    from claw_r1.consumers.rewards.app import serve

    return serve


if __name__ == "__main__":
    raise SystemExit(main())

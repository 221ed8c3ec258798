"""`python -m consumers.rewards`: score until SIGTERM or SIGINT."""

import sys
from collections.abc import Sequence

from consumers.rewards.settings import RewardsSettings
from eventlog.settings import LogSettings
from schemas.runtime.command_line import CommandLine, SettingsRefused


def main(argv: Sequence[str] | None = None) -> int:
    """0: stopped as asked, 2: could not start or go on."""
    command_line = CommandLine(
        "claw rewards run", "Judge what agents did, and write the verdicts as rewards.", RewardsSettings, LogSettings
    )
    flags = command_line.parse(argv)

    from consumers.errors import ConsumerError
    from consumers.rewards.app import serve
    from eventlog.errors import LogError

    try:
        serve(command_line.read(RewardsSettings, flags), command_line.read(LogSettings, flags))
    except (SettingsRefused, LogError, ConsumerError, OSError) as error:
        print(f"rewards: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

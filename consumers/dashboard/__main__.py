"""`python -m consumers.dashboard`: the pool and the runs on a page, until SIGTERM or SIGINT."""

import sys
from collections.abc import Sequence

from consumers.dashboard.settings import DashboardSettings
from eventlog.settings import LogSettings
from schemas.runtime.command_line import CommandLine, SettingsRefused


def main(argv: Sequence[str] | None = None) -> int:
    """0: stopped as asked, 2: could not start or go on."""
    command_line = CommandLine(
        "claw dashboard", "The pool and the runs on a page, live.", DashboardSettings, LogSettings
    )
    flags = command_line.parse(argv)

    from consumers.dashboard.app import serve
    from consumers.errors import ConsumerError
    from eventlog.errors import LogError

    try:
        serve(command_line.read(DashboardSettings, flags), command_line.read(LogSettings, flags))
    except (SettingsRefused, LogError, ConsumerError) as error:
        print(f"dashboard: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

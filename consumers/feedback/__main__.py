"""`python -m consumers.feedback`: the page on which people judge, until SIGTERM or SIGINT."""

import sys
from collections.abc import Sequence

from consumers.feedback.settings import FeedbackPageSettings
from eventlog.settings import LogSettings
from schemas.runtime.command_line import CommandLine, SettingsRefused


def main(argv: Sequence[str] | None = None) -> int:
    """0: stopped as asked, 2: could not start or go on."""
    command_line = CommandLine(
        "claw feedback", "A page on which people judge what agents did.", FeedbackPageSettings, LogSettings
    )
    flags = command_line.parse(argv)

    from consumers.errors import ConsumerError
    from consumers.feedback.app import serve
    from eventlog.errors import LogError

    try:
        serve(command_line.read(FeedbackPageSettings, flags), command_line.read(LogSettings, flags))
    except (SettingsRefused, LogError, ConsumerError) as error:
        print(f"feedback: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

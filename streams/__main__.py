"""`python -m claw_r1.streams`: parse first, import what is heavy afterwards, so that `--help` is instant."""

import logging
import sys
from collections.abc import Sequence

from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.command_line import CommandLine, SettingsRefused
from claw_r1.runtime.modules import needs_extra
from claw_r1.streams.settings import StreamsSettings


@needs_extra("streams")
def main(argv: Sequence[str] | None = None) -> int:
    """Fold until SIGTERM or SIGINT; 0: stopped as asked, 2: could not start; others: `claw_r1.streams.errors.ExitCode`."""
    command_line = CommandLine("claw streams", "Fold the facts of the log into the pool.", StreamsSettings, LogSettings)
    flags = command_line.parse(argv)

    from claw_r1.eventlog.errors import LogError
    from claw_r1.runtime.logs import log_to_stderr
    from claw_r1.streams.serve import serve

    log_to_stderr()
    # Of Faust and aiokafka only what is wrong.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")

    try:
        return serve(command_line.read(StreamsSettings, flags), command_line.read(LogSettings, flags))
    except (SettingsRefused, LogError, OSError) as error:
        print(f"streams: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())

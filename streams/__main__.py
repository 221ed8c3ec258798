"""`python -m streams`: parse first, import what is heavy afterwards, so that `--help` is instant."""

import logging
import sys
from collections.abc import Sequence

from eventlog.settings import LogSettings
from schemas.runtime.command_line import CommandLine, SettingsRefused
from schemas.runtime.modules import needs_extra
from streams.settings import StreamsSettings


@needs_extra("streams")
def main(argv: Sequence[str] | None = None) -> int:
    """Fold until SIGTERM or SIGINT; 0: stopped as asked, 2: could not start; others: `streams.errors.ExitCode`."""
    command_line = CommandLine("claw streams", "Fold the facts of the log into the pool.", StreamsSettings, LogSettings)
    flags = command_line.parse(argv)

    from eventlog.errors import LogError
    from schemas.runtime.logs import log_to_stderr
    from streams.serve import serve

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

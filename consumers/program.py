"""The program behind `python -m claw_r1.consumers.NAME` for every consumer that runs until a signal stops it."""

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic_settings import BaseSettings

from claw_r1.eventlog.settings import LogSettings
from claw_r1.runtime.command_line import CommandLine, SettingsRefused
from claw_r1.runtime.modules import needs_extra

Settings = TypeVar("Settings", bound=BaseSettings)


@needs_extra("consumers")
def run_consumer(
    command: str,
    about: str,
    settings: type[Settings],
    load_serve: Callable[[], Callable[[Settings, LogSettings], None]],
    argv: Sequence[str] | None,
    *refusals: type[Exception],
) -> int:
    """0: stopped as asked, 2: could not start or go on, which is one line on stderr.

    command: as a person types it; its second word begins that line. load_serve: imports what serves, once the arguments are
    read, so that `--help` is instant. refusals: what ends it so besides errors of the settings, the log and consumers.
    """
    command_line = CommandLine(command, about, settings, LogSettings)
    flags = command_line.parse(argv)

    from claw_r1.consumers.errors import ConsumerError
    from claw_r1.eventlog.errors import LogError

    caught: tuple[type[Exception], ...] = (SettingsRefused, LogError, ConsumerError, *refusals)
    serve = load_serve()
    try:
        serve(command_line.read(settings, flags), command_line.read(LogSettings, flags))
    except caught as error:
        print(f"{command.split()[1]}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0

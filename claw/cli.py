"""The `claw` command of a person. Every command: results on stdout, logs on stderr; exit 0 done, 1 the answer is no, 2
it could not run.

Heavy imports stay inside the commands, so that `--help` is instant.
"""

import os
import sys

from claw_r1.claw.clients import clients
from claw_r1.claw.data.commands import data
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.home import claw_home
from claw_r1.claw.keys.commands import keys
from claw_r1.claw.label.commands import label
from claw_r1.claw.local.commands import stack
from claw_r1.claw.notice import notice
from claw_r1.claw.options import Commands
from claw_r1.claw.panels import DATA, ENGINEERS, OPERATORS
from claw_r1.claw.pool.commands import pool
from claw_r1.claw.rewards.commands import rewards
from claw_r1.claw.rooms import rooms
from claw_r1.claw.runs.commands import runs
from claw_r1.claw.show.commands import show
from claw_r1.claw.tls.tls_dir import secured_stack
from claw_r1.claw.topics.commands import topics
from claw_r1.claw.workers.commands import workers
from claw_r1.consumers.errors import ConsumerError
from claw_r1.datapool.errors import PoolError
from claw_r1.eventlog.errors import LogError
from claw_r1.runtime.errors import ProcessError
from claw_r1.runtime.logs import log_to_stderr
from claw_r1.runtime.modules import advice
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.streams.errors import StreamsError

REFUSALS = (CannotRun, ProcessError, LogError, PoolError, StreamsError, ConsumerError, UndecodableRecord)
"""The errors that end a command with one line for a person: each room's own errors need no other name on the way
here."""
OWN_EXTRAS = ("consumers", "stack")
"""The extras that commands import and no program of a room needs."""
app = Commands(
    name="claw",
    help="Claw-R1, event-sourced: agents learn through a Kafka log.",
    pretty_exceptions_enable=False,
)
for commands in (stack, rooms, clients, data, label, show):
    app.add_typer(commands)
app.add_typer(pool, rich_help_panel=DATA)
app.add_typer(rewards, rich_help_panel=DATA)
app.add_typer(runs, rich_help_panel=ENGINEERS)
app.add_typer(workers, rich_help_panel=OPERATORS)
app.add_typer(topics, rich_help_panel=OPERATORS)
app.add_typer(keys, rich_help_panel=OPERATORS)


KEPT_IN_HOME = {"CLAW_LOG_VIEWS_DIR": "views", "CLAW_GATEWAY_SPOOL_DIR": "spool"}
"""Settings whose default for a command, wherever it is typed, is a folder of the claw home."""


def main() -> None:
    """Entry point: what the command cannot do without is one line on stderr and exit code 2, never a traceback."""
    log_to_stderr("warning")  # a person at a terminal wants to see what went wrong, and no more
    for name, folder in KEPT_IN_HOME.items():
        os.environ.setdefault(name, str(claw_home() / folder))  # for programs that we start, too
    try:
        secured_stack()
        app()
    except (*REFUSALS, ModuleNotFoundError, ValueError, OSError) as error:
        if (line := _refusal(error)) is None:
            raise
        notice(line)
        sys.exit(2)


def _refusal(error: Exception) -> str | None:
    """Returns one line for a person: a refusal, a library of an extra, a file that cannot be used, a setting that cannot be; None for
    a bug, and where nobody reads what we say."""
    if isinstance(error, REFUSALS):
        return " ".join(str(error).split())
    if isinstance(error, OSError):
        return None if isinstance(error, BrokenPipeError) else _of_system(error)
    if isinstance(error, ModuleNotFoundError):
        return advice(error, OWN_EXTRAS)
    from pydantic import ValidationError

    from claw_r1.eventlog.settings import LogSettings
    from claw_r1.runtime.command_line import first_problem
    from claw_r1.runtime.tls.doors import DoorTls

    for settings in (LogSettings, DoorTls):
        if isinstance(error, ValidationError) and error.title == settings.__name__:
            return first_problem(settings, error)
    return None


def _of_system(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return " ".join(str(error).split()) or type(error).__name__
    return f"{error.filename}: {error.strerror}"


if __name__ == "__main__":
    main()

"""A log to read from: the broker that is named or runs, else the kept one, started for the
duration of the command."""

from collections.abc import Iterator
from contextlib import contextmanager

from claw_r1.claw.local.broker import resolve_broker
from claw_r1.claw.notice import notice
from claw_r1.eventlog.settings import LogSettings

STARTED = (
    "no broker was running, so this command started one and stops it at its end, which takes some seconds; "
    "`claw broker` in another terminal keeps one running"
)


@contextmanager
def log_for_reading(prefix: str) -> Iterator[LogSettings]:
    """Settings of a broker that answers. Raises CannotRun with the ways out when there is none.

    Whoever waits for a broker to start and stop is told so, once, on stderr.
    """
    with resolve_broker() as broker:
        if broker.local is not None and broker.local.started_here:
            notice(STARTED)
        yield LogSettings(bootstrap_servers=broker.bootstrap, prefix=prefix)

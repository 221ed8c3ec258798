"""`claw dashboard`: the page on the broker that is named or runs, else on the kept one, which is open as long
as the page."""

import os
import signal
from collections.abc import Sequence

from claw_r1.claw.local.broker import resolve_broker
from claw_r1.claw.local.ports import BROKER_NAMES
from claw_r1.runtime.processes import child

MODULE = "claw_r1.consumers.dashboard"
STOP_S = 10.0
HELP = ("--help", "-h")


def run_dashboard(arguments: Sequence[str]) -> int:
    """The page's exit code. Raises CannotRun where there is no broker."""
    argv = child.module_argv(MODULE, *arguments)
    if any(each in HELP or each.startswith("--bootstrap") for each in arguments):
        os.execv(argv[0], argv)  # nothing of ours is needed
    with resolve_broker() as broker:
        process = child.start(argv, env={**os.environ, **dict.fromkeys(BROKER_NAMES, broker.bootstrap)})
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda each, _: process.send_signal(each))
        try:
            return process.wait()
        finally:
            child.end(process, (signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S))

"""The commands that are rooms: `claw gateway …` becomes `python -m claw_r1.gateway …`, so that signals and
exit code are the room's."""

import os
import sys
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import typer

from claw_r1.claw.options import PASS_ON, Commands
from claw_r1.claw.panels import AUTHORS, DATA, ENGINEERS, OPERATORS
from claw_r1.runtime.logs import drain_logs
from claw_r1.runtime.processes.child import module_argv


class Room(NamedTuple):
    """A room that a person starts by its command."""

    command: str
    module: str
    panel: str
    help: str


ROOMS = (
    Room("gateway", "claw_r1.gateway", AUTHORS, "Run the gateway (`claw gateway --help`)."),
    Room("agents", "claw_r1.agentflow", AUTHORS, "Run agents: flows in Python, or any command (`claw agents run`)."),
    Room("train", "claw_r1.trainer", ENGINEERS, "Run a trainer (`claw train --config F`)."),
    Room("rollout", "claw_r1.rollout", ENGINEERS, "Run a rollout worker (`claw rollout --model M`)."),
    Room(
        "quality", "claw_r1.consumers.quality", DATA, "Score captured calls by pure functions (`claw quality --help`)."
    ),
    Room("streams", "claw_r1.streams", OPERATORS, "Run a stream processor (`claw streams --help`)."),
)
rooms = Commands()


def becoming(module: str) -> Callable[[typer.Context], NoReturn]:
    """A command that turns this process into `python -m MODULE` with the arguments that follow the command."""

    def become(context: typer.Context) -> NoReturn:
        sys.stdout.flush()
        drain_logs()
        os.execv(sys.executable, module_argv(module, *context.args))

    return become


for room in ROOMS:
    register = rooms.command(room.command, help=room.help, rich_help_panel=room.panel, context_settings=PASS_ON)
    register(becoming(room.module))

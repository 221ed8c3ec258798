"""`claw label`: what a person says of a reply, and what people said. The command only hands its options to
`claw_r1.claw.label.label`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from claw_r1.claw.answers import Answers
from claw_r1.claw.options import Commands, Prefix
from claw_r1.claw.panels import DATA

label = Commands()


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelOptions:
    """The feedback as a person types it."""

    thumb: Annotated[str | None, typer.Option(help="up or down.")] = None
    score: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Score: style=0.8; may be repeated.")
    ] = None
    prefer: Annotated[
        str | None, typer.Option(metavar="OTHER", help="Trajectory or call of the same group that is better than ID.")
    ] = None
    tie: Annotated[bool, typer.Option("--tie", help="With --prefer: both are as good.")] = False
    both_bad: Annotated[bool, typer.Option("--both-bad", help="With --prefer: neither is any good.")] = False
    edit: Annotated[
        Path | None,
        typer.Option(
            help="File with a better reply to the call, as text; of a name in .json as the assistant's message; - is stdin.",
        ),
    ] = None
    comment: Annotated[str | None, typer.Option(help="Comment, alone or with other feedback.")] = None
    undo: Annotated[bool, typer.Option("--undo", help="Take back the last feedback of --who on ID.")] = False


@label.command("label", rich_help_panel=DATA)
def judge(
    *,
    name: Annotated[
        str, typer.Argument(metavar="ID", help="Call, trajectory, GROUP/TRAJECTORY or GROUP/TRAJECTORY/CALL.")
    ],
    options: LabelOptions,
    history: Annotated[bool, typer.Option("--list", help="Show all feedback on ID, which may be a group.")] = False,
    who: Annotated[str | None, typer.Option(envvar="USER", help="Name of the person who judges.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be published.")] = False,
    prefix: Prefix = "claw",
) -> Answers:
    """Judge a trajectory or a call: thumb, scores, a better reply, which of two. Exit 1 when nothing is to be undone or listed."""
    from claw_r1.claw.label.label import run_label, run_list, run_undo

    if history:
        return run_list(name, options, prefix=prefix)
    run = run_undo if options.undo else run_label
    return run(name, options, who=who, dry_run=dry_run, prefix=prefix)

"""The commands that read, write out and repair facts."""

from pathlib import Path
from typing import Annotated

import typer

from claw_r1.claw.answers import Answers
from claw_r1.claw.data.settings import ExportSettings, LetterQuery, RebuildSettings, ReplaySettings
from claw_r1.claw.options import AsJson, Commands, Prefix
from claw_r1.claw.panels import DATA, OPERATORS

data = Commands()


@data.command(rich_help_panel=DATA)
def replay(settings: ReplaySettings) -> Answers:
    """Print a range of some topics in order of time, or write it into a file or another topic."""
    from claw_r1.claw.data.replay import run_replay

    return run_replay(settings)


@data.command(rich_help_panel=DATA)
def export(settings: ExportSettings) -> Answers:
    """Write a dataset as Parquet, folded from the facts; exit 1 when a manifest gave other bytes."""
    from claw_r1.claw.data.export import run_export

    return run_export(settings)


@data.command(rich_help_panel=DATA)
def rebuild(settings: RebuildSettings) -> Answers:
    """Fold all facts into the next generation of the pool; a rebuild that was killed continues when it is started again."""
    from claw_r1.claw.data.rebuild import run_rebuild

    return run_rebuild(settings)


@data.command(rich_help_panel=DATA)
def lineage(
    name: Annotated[
        str, typer.Argument(metavar="ID", help="RUN/VERSION of weights, a group, trajectory, call or verdict.")
    ],
    every: Annotated[
        bool, typer.Option("--all", help="For a version: show every batch behind it, not only the last.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Trajectories at most; default: 20, with --json all.")
    ] = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> Answers:
    """Trace weights to the requests behind them, a call to the versions trained on it, a verdict to its judge's calls;
    exit 1 when there is nothing."""
    from claw_r1.claw.data.lineage import run_lineage

    return run_lineage(name, every=every, limit=limit, prefix=prefix, as_json=as_json)


@data.command(rich_help_panel=DATA)
def verify(
    replied: Annotated[Path | None, typer.Option(help="A file with one x-claw-call-id per line.")] = None,
    run: Annotated[str | None, typer.Option(help="Only the plans of this run; default: of every run.")] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="PREFIX[@BROKER]", help="Compare the pool with that of the log it was copied from, too."),
    ] = None,
    prefix: Prefix = "claw",
) -> Answers:
    """Check the pool against the facts, and that no call was lost and no step trained twice; exit 1 names each offender."""
    from claw_r1.claw.data.verify import run_verify

    return run_verify(replied, run, prefix=prefix, against=against)


@data.command(rich_help_panel=OPERATORS)
def dlq(
    action: Annotated[str, typer.Argument(help="list, show, redrive or dismiss.")],
    query: LetterQuery,
    prefix: Prefix = "claw",
) -> Answers:
    """List dead letters, show one whole, append them to their fact topic again, each once, or dismiss them."""
    from claw_r1.claw.data.dlq import run_dlq

    return run_dlq(action, query, prefix=prefix)

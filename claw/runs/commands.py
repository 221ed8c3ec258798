"""The commands of `claw runs`. Each only hands its arguments to a function of this folder."""

from pathlib import Path
from typing import Annotated

import typer

from claw_r1.claw.options import AsJson, Prefix

runs = typer.Typer(
    name="runs",
    help="List training runs, show one whole, draw their curves, compare two.",
    no_args_is_help=True,
    add_completion=False,
)
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, as `claw runs list` shows it.")]


@runs.command("list")
def list_(prefix: Prefix = "claw", as_json: AsJson = False) -> None:
    """List all runs, the one that wrote last first: model, state, batches, version, last reward, age of the last batch."""
    from claw_r1.claw.runs.show import run_list

    raise typer.Exit(run_list(prefix=prefix, as_json=as_json))


@runs.command()
def show(run: RunArgument, prefix: Prefix = "claw", as_json: AsJson = False) -> None:
    """Show one run: settings, versions, the best evaluated one and its export, evaluations, skipped groups, the curve."""
    from claw_r1.claw.runs.show import run_show

    raise typer.Exit(run_show(run, prefix=prefix, as_json=as_json))


@runs.command()
def plot(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Names of runs; several share one picture.")],
    out: Annotated[Path | None, typer.Option(help="PNG file; default: plots/RUN.png in the claw home.")] = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Draw reward, evaluation, staleness, KL and waiting over the batches of one run or several, as PNG."""
    from claw_r1.claw.runs.plot import run_plot

    raise typer.Exit(run_plot(names, out, prefix=prefix, as_json=as_json))


@runs.command()
def compare(left: RunArgument, right: RunArgument, prefix: Prefix = "claw", as_json: AsJson = False) -> None:
    """Compare two runs: the settings in which they differ, and their metrics over equally many batches."""
    from claw_r1.claw.runs.show import run_compare

    raise typer.Exit(run_compare(left, right, prefix=prefix, as_json=as_json))

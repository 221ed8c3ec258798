"""The commands of `claw runs`. Each only hands its arguments to a function of this folder."""

from pathlib import Path
from typing import Annotated

import typer

from claw_r1.claw.answers import Answers
from claw_r1.claw.options import Commands, Prefix

runs = Commands(
    name="runs",
    help="List training runs, show one whole, draw their curves, compare two.",
)
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, as `claw runs list` shows it.")]


@runs.command("list")
def list_(prefix: Prefix = "claw") -> Answers:
    """List all runs, the one that wrote last first: model, state, batches, version, last reward, age of the last batch."""
    from claw_r1.claw.runs.show import run_list

    return run_list(prefix=prefix)


@runs.command()
def show(run: RunArgument, prefix: Prefix = "claw") -> Answers:
    """Show one run: settings, versions, the best evaluated one and its export, evaluations, skipped groups, the curve."""
    from claw_r1.claw.runs.show import run_show

    return run_show(run, prefix=prefix)


@runs.command()
def plot(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Names of runs; several share one picture.")],
    out: Annotated[Path | None, typer.Option(help="PNG file; default: plots/RUN.png in the claw home.")] = None,
    prefix: Prefix = "claw",
) -> Answers:
    """Draw reward, evaluation, staleness, KL and waiting over the batches of one run or several, as PNG."""
    from claw_r1.claw.runs.plot import run_plot

    return run_plot(names, out, prefix=prefix)


@runs.command()
def compare(left: RunArgument, right: RunArgument, prefix: Prefix = "claw") -> Answers:
    """Compare two runs: the settings in which they differ, and their metrics over equally many batches."""
    from claw_r1.claw.runs.show import run_compare

    return run_compare(left, right, prefix=prefix)

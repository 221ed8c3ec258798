"""The commands of `claw rewards`. Each only hands its arguments to a function of this folder, or to the room."""

from pathlib import Path
from typing import Annotated

import typer

from claw.options import PASS_ON, AsJson, Prefix
from claw.rooms import becoming

rewards = typer.Typer(
    name="rewards",
    help="Judge what agents did: run scorers, try them, see what they cost.",
    no_args_is_help=True,
    add_completion=False,
)
Config = Annotated[Path, typer.Option(envvar="CLAW_REWARDS_CONFIG", help="File with the scorers: docs/rewards.md.")]
rewards.command("run", help="Run the scorers of a file (`claw rewards run --help`).", context_settings=PASS_ON)(
    becoming("consumers.rewards")
)


@rewards.command("test")
def try_scorers(
    on: Annotated[str, typer.Option("--on", metavar="[GROUP/]TRAJECTORY", help="What to judge.")],
    config: Config = Path("rewards.yaml"),
    scorer: Annotated[list[str] | None, typer.Option(metavar="SLOT", help="Only these; default: all of it.")] = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Show what each scorer would say of a trajectory; nothing is written. Exit 1 when one of them gives up."""
    from claw.rewards.trial import run_trial

    raise typer.Exit(run_trial(on, config, scorer or (), prefix=prefix, as_json=as_json))


@rewards.command()
def stats(prefix: Prefix = "claw", as_json: AsJson = False) -> None:
    """Show for each scorer its verdicts, failures, how far it is behind, and what it cost."""
    from claw.rewards.stats import run_stats

    raise typer.Exit(run_stats(prefix=prefix, as_json=as_json))

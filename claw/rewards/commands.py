"""The commands of `claw rewards`. Each only hands its arguments to a function of this folder, or to the room."""

from pathlib import Path
from typing import Annotated

import typer

from claw_r1.claw.answers import Answers
from claw_r1.claw.options import PASS_ON, Commands, Prefix
from claw_r1.claw.rooms import becoming
from claw_r1.datapool.view.listing.pool_filter import PoolFilter

rewards = Commands(
    name="rewards",
    help="Judge episodes: run scorers, try them, see their cost.",
)
ConfigOption = Annotated[
    Path, typer.Option(envvar="CLAW_REWARDS_CONFIG", help="File with the scorers: docs/rewards.md.")
]
rewards.command("run", help="Run the scorers of a file (`claw rewards run --help`).", context_settings=PASS_ON)(
    becoming("claw_r1.consumers.rewards")
)
rewards.command("serve", help="Serve a reward model (`claw rewards serve --model DIR`).", context_settings=PASS_ON)(
    becoming("claw_r1.rollout.rewards")
)


@rewards.command("test")
def try_scorers(
    on: Annotated[str, typer.Option("--on", metavar="[GROUP/]TRAJECTORY", help="What to judge.")],
    config: ConfigOption = Path("rewards.yaml"),
    scorer: Annotated[list[str] | None, typer.Option(metavar="SLOT", help="Only these; default: all of it.")] = None,
    prefix: Prefix = "claw",
) -> Answers:
    """Show what each scorer would say of a trajectory; nothing is written. Exit 1 when one of them gives up."""
    from claw_r1.claw.rewards.trial import run_trial

    return run_trial(on, config, scorer or (), prefix=prefix)


@rewards.command()
def stats(prefix: Prefix = "claw") -> Answers:
    """Show for each scorer its verdicts, failures, how far it is behind, and what it cost."""
    from claw_r1.claw.rewards.stats import run_stats

    return run_stats(prefix=prefix)


@rewards.command()
def agree(
    left: Annotated[
        str,
        typer.Argument(
            metavar="A", help="Slot SOURCE/NAME, or a quoted pattern: 'human:*/style'; of one version judge/style@2."
        ),
    ],
    right: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="As A; without it the raters of A are compared among themselves."),
    ] = None,
    resamples: Annotated[int, typer.Option(min=0, help="Of the bootstrap; 0 makes no intervals.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    prefix: Prefix = "claw",
) -> Answers:
    """Show how far a scorer agrees with people, with its own other version, or people with each other. Exit 1 when no
    subject has two ratings."""
    from claw_r1.claw.rewards.agree import run_agree

    return run_agree(left, right, resamples=resamples, seed=seed, prefix=prefix)


@rewards.command("backfill")
def score_again(
    *,
    slot: Annotated[str, typer.Argument(metavar="SLOT", help="source/name, as in the file.")],
    generation: Annotated[
        int, typer.Option(min=1, help="Number of this scoring of the history; a higher one outranks.")
    ],
    config: ConfigOption = Path("rewards.yaml"),
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="beginning, an offset or an ISO time (UTC).")
    ] = "beginning",
    end: Annotated[str, typer.Option("--to", metavar="WHERE", help="end, an offset or an ISO time (UTC).")] = "end",
    filters: PoolFilter,
    budget_tokens: Annotated[
        int | None, typer.Option(min=0, help="Stop when so many are spent; default: the slot's tokens of one day.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the expected cost.")] = False,
    prefix: Prefix = "claw",
) -> Answers:
    """Score the history with the slot's present version. It goes on where it was; exit 1 when it stopped before the end."""
    from claw_r1.claw.rewards.backfill import BackfillRequest, run_backfill

    request = BackfillRequest(
        slot=slot,
        generation=generation,
        config=config,
        start=start,
        end=end,
        filters=filters,
        tokens_max=budget_tokens,
        dry_run=dry_run,
    )
    return run_backfill(request, prefix=prefix)

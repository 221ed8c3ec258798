"""Options that several commands of `claw pool` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """The filter of rows, as a person types it; `claw_r1.claw.pool.filter` makes a `PoolFilter` of it."""

    channel: Annotated[str | None, typer.Option(help="Only this channel, for example train or val.")] = None
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None
    trajectory: Annotated[str | None, typer.Option(help="Only this trajectory.")] = None
    agent: Annotated[str | None, typer.Option(help="Only this agent.")] = None
    tag: Annotated[
        list[str] | None,
        typer.Option(
            help="Only what carries this tag: its own, one by curation, or one of its trajectory or group; may be repeated."
        ),
    ] = None
    trainable: Annotated[
        bool | None,
        typer.Option(
            "--trainable/--not-trainable",
            help="Steps that may (not) be trained on; trajectories and groups with such a step.",
        ),
    ] = None
    quality_min: Annotated[
        float | None, typer.Option(help="Lowest quality of a step; trajectories and groups with such a step.")
    ] = None
    quality_max: Annotated[
        float | None, typer.Option(help="Highest quality of a step; trajectories and groups with such a step.")
    ] = None
    score: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BOUND",
            help="Bound on one scorer's score of a step: 'entropy@1>=0.3' or <=, quoted; may be repeated.",
        ),
    ] = None
    reward_min: Annotated[
        float | None, typer.Option(help="Lowest reward of a step, return of a trajectory or mean return of a group.")
    ] = None
    reward_max: Annotated[
        float | None, typer.Option(help="Highest reward of a step, return of a trajectory or mean return of a group.")
    ] = None
    version_min: Annotated[
        int | None, typer.Option(help="At least one token was sampled by this version or a later one.")
    ] = None
    version_max: Annotated[
        int | None, typer.Option(help="At least one token was sampled by this version or an earlier one.")
    ] = None
    text: Annotated[
        str | None,
        typer.Option(help="Text in ids, tags, tasks or notes; for steps also in the whole request and the reply."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """The part of a list that is shown, and its form."""

    limit: Annotated[int, typer.Option(min=1, help="Rows of one page.")] = 20
    after: Annotated[
        str | None, typer.Option(help="Continue behind this key, which the last line of the page before names.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerspectiveOptions:
    """The run, the version and the spec from which a group is looked at."""

    spec: Annotated[Path | None, typer.Option(help="Batch spec (YAML or JSON); default: the run's own.")] = None
    preset: Annotated[str | None, typer.Option(help="A preset instead of a spec file: grpo, sft_best, …")] = None
    run: Annotated[str | None, typer.Option(help="Run that would train; default: the run with the latest event.")] = (
        None
    )
    version: Annotated[
        int | None, typer.Option(help="Version that is to be trained; default: the run's present one.")
    ] = None

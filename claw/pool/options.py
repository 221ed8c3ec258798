"""Options that several commands of `claw pool` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptions:
    """Which rows are meant, as a person types it; `claw.pool.filter` makes a `PoolFilter` of it."""

    channel: Annotated[str | None, typer.Option(help="Channel, for example train or val.")] = None
    group: Annotated[str | None, typer.Option(help="Group id.")] = None
    trajectory: Annotated[str | None, typer.Option(help="Trajectory id.")] = None
    agent: Annotated[str | None, typer.Option(help="Agent.")] = None
    tag: Annotated[
        list[str] | None,
        typer.Option(help="Carries this tag, itself, by curation or with what it is in; may be repeated."),
    ] = None
    trainable: Annotated[
        bool | None,
        typer.Option("--trainable/--not-trainable", help="May be trained on; of others: a step of theirs may."),
    ] = None
    quality_min: Annotated[
        float | None, typer.Option(help="Lowest quality (of a step; of others: a step of theirs has it).")
    ] = None
    quality_max: Annotated[float | None, typer.Option(help="Highest quality, likewise.")] = None
    score: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BOUND", help="Bound on one scorer, likewise: 'entropy@1>=0.3' or <=, quoted; may be repeated."
        ),
    ] = None
    reward_min: Annotated[
        float | None, typer.Option(help="Lowest reward (step), return (trajectory) or mean (group).")
    ] = None
    reward_max: Annotated[float | None, typer.Option(help="Highest reward, return or mean.")] = None
    version_min: Annotated[int | None, typer.Option(help="Some token is of this version or later.")] = None
    version_max: Annotated[int | None, typer.Option(help="Some token is of this version or earlier.")] = None
    text: Annotated[
        str | None, typer.Option(help="In ids, tags, task, notes; of steps, in the whole request and the reply, too.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """Which part of a list is shown, and how."""

    limit: Annotated[int, typer.Option(min=1, help="Rows of one page.")] = 20
    after: Annotated[str | None, typer.Option(help="Go on behind this key (the page before says it).")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerspectiveOptions:
    """The run, the version and the spec from which a group is looked at."""

    spec: Annotated[Path | None, typer.Option(help="Batch spec (YAML or JSON); default: the run's own.")] = None
    preset: Annotated[str | None, typer.Option(help="A preset instead of a spec file: grpo, sft_best, …")] = None
    run: Annotated[str | None, typer.Option(help="Run; default: the one heard of last.")] = None
    version: Annotated[int | None, typer.Option(help="Version to be trained; default: the run's present one.")] = None

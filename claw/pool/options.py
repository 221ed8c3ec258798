"""Options that several commands of `claw pool` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """The part of a list that is shown, and its form."""

    limit: Annotated[int, typer.Option(min=1, help="Rows of one page.")] = 20
    after: Annotated[
        str | None, typer.Option(help="Continue after this key, which the last line of the previous page names.")
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

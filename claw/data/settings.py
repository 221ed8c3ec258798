"""The arguments of `claw replay`, `claw export`, `claw rebuild` and `claw dlq`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from claw_r1.claw.options import Prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """The records to replay, with pace and target."""

    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Name in the catalogue; may be repeated. Default: the facts, calls and rewards."),
    ] = None
    start: Annotated[
        str,
        typer.Option("--from", help="The first record: beginning, end, an offset, or an ISO time (UTC)."),
    ] = "beginning"
    end: Annotated[
        str,
        typer.Option("--to", help="Where to stop, written like --from; the record at this offset or time is left out."),
    ] = "end"
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            help="NAME=VALUE: type, key, a field (group, trajectory, call, …) or a header; may be repeated, and all must hold.",
        ),
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")] = None
    speed: Annotated[
        float,
        typer.Option(
            min=0,
            help="1 keeps the original pace of all topics together, 10 is ten times as fast, 0 does not wait at all.",
        ),
    ] = 0
    into: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC|FILE", help="An existing topic (of one --topic), or a file of JSON lines (*.jsonl)."
        ),
    ] = None
    force: Annotated[bool, typer.Option(help="Allow a topic of facts as the target.")] = False
    prefix: Prefix = "claw"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """The dataset to write. `manifest` makes an earlier one again; the others make a new one."""

    out: Annotated[Path, typer.Option(help="Directory for the dataset: new or empty.")]
    spec: Annotated[
        Path | None,
        typer.Option(help="Batch spec (YAML or JSON); without one, everything that was captured is written."),
    ] = None
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="Where to begin: beginning, earliest (the first record that retention left), an offset, or the end of a manifest.",
        ),
    ] = "beginning"
    end: Annotated[str, typer.Option("--to", help="Where to stop: end, an offset, or the end of a manifest.")] = "end"
    manifest: Annotated[Path | None, typer.Option(help="Write the dataset of this manifest again, byte for byte.")] = (
        None
    )
    format: Annotated[
        str, typer.Option(help="steps (and sequences), or dpo: pairs of a preferred and another answer.")
    ] = "steps"
    pairs: Annotated[
        list[str] | None,
        typer.Option(help="With dpo, of what: preferences, edits, rewards; may be repeated. Default: the first two."),
    ] = None
    preference: Annotated[
        str | None, typer.Option(help="With dpo: name of the preferences that count. Default: overall.")
    ] = None
    margin: Annotated[
        float | None,
        typer.Option(min=0, help="With --pairs rewards: least difference of two rewards. Default: above 0."),
    ] = None
    slot: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE/NAME",
            help="With --pairs rewards: whose rewards, a pattern: human:*/overall. Default: the return.",
        ),
    ] = None
    follow: Annotated[bool, typer.Option("--follow", help="Go on until SIGTERM, part by part, in OUT/parts.")] = False
    every: Annotated[str, typer.Option(help="With --follow: pause, and silence before a group goes out.")] = "5m"
    prefix: Prefix = "claw"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildSettings:
    """The facts to fold, and the generation that they are folded into. `generation` None: the
    one after that in use."""

    to: Annotated[
        str, typer.Option(help="Up to where: end, a time (ISO 8601, UTC), or a file of offsets (a manifest).")
    ] = "end"
    generation: Annotated[
        int | None, typer.Option(min=1, help="The generation to make; default: the one after that in use.")
    ] = None
    manifest: Annotated[Path | None, typer.Option(help="Write the offsets to this file.")] = None
    flush_facts: Annotated[int, typer.Option(min=1, help="Facts in one transaction.")] = 5000
    prefix: Prefix = "claw"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterQuery:
    """The dead letters that a command is about. `ids`: PARTITION@OFFSET; `every` stands for all that `reason` and
    `source` leave."""

    ids: Annotated[
        list[str] | None, typer.Argument(help="Letters as PARTITION@OFFSET, for show, redrive, dismiss.")
    ] = None
    every: Annotated[
        bool, typer.Option("--all", help="Redrive or dismiss every letter that --reason and --source let through.")
    ] = False
    reason: Annotated[str | None, typer.Option(help="Only letters of this reason, for example fold_bug.")] = None
    source: Annotated[str | None, typer.Option(help="Only letters from this topic, for example calls.")] = None
    pending: Annotated[
        bool, typer.Option(help="List only letters that were neither redriven nor dismissed; reads the fact topics.")
    ] = False
    why: Annotated[str | None, typer.Option(help="Dismiss: the reason why they need no more attention.")] = None
    who: Annotated[str | None, typer.Option(envvar="USER", help="Dismiss: name of the person who dismisses.")] = None
    dry_run: Annotated[bool, typer.Option(help="Redrive, dismiss: only say what would be appended.")] = False

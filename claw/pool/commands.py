"""`claw pool`: questions to the pool, and curation. Each command only hands its options to a
function of this folder."""

from typing import Annotated

import typer

from claw_r1.claw.answers import Answers
from claw_r1.claw.options import Commands, Prefix
from claw_r1.claw.pool.options import PageOptions, PerspectiveOptions
from claw_r1.datapool.view.listing.pool_filter import PoolFilter

pool = Commands(
    name="pool",
    help="Look into the pool, judge its steps, evict groups, preview a batch.",
)


@pool.command()
def stats(filters: PoolFilter, prefix: Prefix = "claw") -> Answers:
    """Count groups, trajectories, steps and tokens, and each reason why something is not ready: for what the filter lets through."""
    from claw_r1.claw.pool.listing import show_stats

    return show_stats(filters, prefix=prefix)


@pool.command()
def steps(filters: PoolFilter, page: PageOptions, prefix: Prefix = "claw") -> Answers:
    """List steps (model calls)."""
    return _list("steps", filters, page, prefix)


@pool.command()
def trajectories(
    *,
    filters: PoolFilter,
    page: PageOptions,
    prefix: Prefix = "claw",
) -> Answers:
    """List trajectories."""
    return _list("trajectories", filters, page, prefix)


@pool.command()
def groups(
    *,
    filters: PoolFilter,
    page: PageOptions,
    prefix: Prefix = "claw",
) -> Answers:
    """List groups."""
    return _list("groups", filters, page, prefix)


@pool.command()
def why(
    name: Annotated[str, typer.Argument(metavar="ID", help="Group, trajectory or call.")],
    perspective: PerspectiveOptions,
    prefix: Prefix = "claw",
) -> Answers:
    """Tell why something is not ready or was left out, or when it was trained. Exit 1 when the pool has no such id."""
    from claw_r1.claw.pool.why import explain

    return explain(name, perspective, prefix=prefix)


TrainOption = Annotated[bool | None, typer.Option("--train/--no-train", help="Whether the steps may be trained on.")]
QualityOption = Annotated[float | None, typer.Option("--quality", help="Quality of the steps, by custom from 0 to 1.")]
ScoreOption = Annotated[
    list[str] | None,
    typer.Option(metavar="SCORE", help="Score that replaces that of a scorer: entropy@1=0.9; may be repeated."),
]
TagOption = Annotated[
    list[str] | None,
    typer.Option(help="Tag; all that are named replace the tags of the steps; may be repeated."),
]
UndoneOption = Annotated[str | None, typer.Option(help="Id of a curation, or of one of its events, to take back.")]


@pool.command()
def curate(
    *,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Calls, trajectories or groups.")] = None,
    set_trainable: TrainOption = None,
    set_quality: QualityOption = None,
    set_score: ScoreOption = None,
    set_tag: TagOption = None,
    because: Annotated[str | None, typer.Option("--why", help="Reason, kept as the note of the curation.")] = None,
    who: Annotated[str | None, typer.Option(envvar="USER", help="Name of the person who judges.")] = None,
    undo: UndoneOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be published.")] = False,
    filters: PoolFilter,
    prefix: Prefix = "claw",
) -> Answers:
    """Judge steps by id or by filter, which is resolved to ids first. Exit 1 when no step is concerned."""
    from claw_r1.claw.pool.curation import check_alone, run_curation, run_undo, scores_of
    from claw_r1.consumers.pool.curation import CurationRequest

    judgement = CurationRequest(
        trainable=set_trainable,
        quality=set_quality,
        scores=scores_of(set_score or ()),
        tags=None if set_tag is None else tuple(set_tag),
        note=because,
    )
    if undo is not None:
        check_alone(ids or [], filters, judgement)
        return run_undo(undo, who=who, dry_run=dry_run, prefix=prefix)
    return run_curation(ids or [], filters, judgement, who=who, dry_run=dry_run, prefix=prefix)


@pool.command()
def evict(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Trajectories, or groups with all of theirs.")],
    why: Annotated[str, typer.Option(help="Reason, kept in the facts.")],
    who: Annotated[str | None, typer.Option(envvar="USER", help="Name of the person who evicts.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Only in this group, where several groups have such a trajectory.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be evicted.")] = False,
    prefix: Prefix = "claw",
) -> Answers:
    """Erase groups or trajectories from the pool, for good; their facts stay. Exit 1, none erased, when an id is unknown."""
    from claw_r1.claw.pool.evict import run_evict

    return run_evict(ids, group, why=why, who=who, dry_run=dry_run, prefix=prefix)


@pool.command()
def batch(
    perspective: PerspectiveOptions,
    explain: Annotated[bool, typer.Option("--explain", help="Explain each field of a spec, and the presets.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also name the groups; --json always does.")] = False,
    prefix: Prefix = "claw",
) -> Answers:
    """Preview the next batch of a spec: counts, tokens saved by shared prefixes, and why each other group is left out."""
    if explain:
        from claw_r1.claw.pool.spec_help import show_knobs

        return show_knobs()
    from claw_r1.claw.pool.preview import preview

    return preview(perspective, prefix=prefix, verbose=verbose)


def _list(kind: str, filters: PoolFilter, page: PageOptions, prefix: str) -> Answers:
    from claw_r1.claw.pool.listing import show_page

    return show_page(kind, filters, page, prefix=prefix)

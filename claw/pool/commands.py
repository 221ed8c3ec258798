"""`claw pool`: questions to the pool, and curation. Thin: each command is a function in a file `claw/pool_*.py`."""

from pathlib import Path
from typing import Annotated, Any

import typer

pool = typer.Typer(
    name="pool",
    help="Look into the pool, judge its steps, evict trajectories, preview a batch.",
    no_args_is_help=True,
    add_completion=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object (or JSON lines) on stdout.")]
Prefix = Annotated[str, typer.Option(envvar="CLAW_LOG_PREFIX", help="Prefix of the topics.")]
Channel = Annotated[str | None, typer.Option(help="Channel, for example train or val.")]
Group = Annotated[str | None, typer.Option(help="Group id.")]
Trajectory = Annotated[str | None, typer.Option(help="Trajectory id.")]
Agent = Annotated[str | None, typer.Option(help="Agent.")]
Tag = Annotated[
    list[str] | None, typer.Option(help="Carries this tag, itself, by curation or with what it is in; may be repeated.")
]
Trainable = Annotated[
    bool | None, typer.Option("--trainable/--not-trainable", help="May be trained on; of others: a step of theirs may.")
]
Ready = Annotated[bool | None, typer.Option("--ready/--not-ready", help="Ready ones.")]
QualityMin = Annotated[
    float | None, typer.Option(help="Lowest quality (of a step; of others: a step of theirs has it).")
]
QualityMax = Annotated[float | None, typer.Option(help="Highest quality, likewise.")]
Score = Annotated[
    list[str] | None,
    typer.Option(
        metavar="BOUND", help="Bound on one scorer, likewise: 'entropy@1>=0.3' or <=, quoted; may be repeated."
    ),
]
RewardMin = Annotated[float | None, typer.Option(help="Lowest reward (step), return (trajectory) or mean (group).")]
RewardMax = Annotated[float | None, typer.Option(help="Highest reward, return or mean.")]
VersionMin = Annotated[int | None, typer.Option(help="Some token is of this version or later.")]
VersionMax = Annotated[int | None, typer.Option(help="Some token is of this version or earlier.")]
Text = Annotated[
    str | None, typer.Option(help="In ids, tags, task, notes; of steps, in the whole request and the reply, too.")
]
Limit = Annotated[int, typer.Option(min=1, help="Rows of one page.")]
After = Annotated[str | None, typer.Option(help="Go on behind this key (the page before says it).")]
Spec = Annotated[Path | None, typer.Option(help="Batch spec (YAML or JSON); default: the run's own.")]
Preset = Annotated[str | None, typer.Option(help="A preset instead of a spec file: grpo, sft_best, …")]
RunId = Annotated[str | None, typer.Option("--run", help="Run; default: the one heard of last.")]
Version = Annotated[int | None, typer.Option(help="Version to be trained; default: the run's present one.")]


@pool.command()
def stats(
    channel: Channel = None,
    group: Group = None,
    trajectory: Trajectory = None,
    agent: Agent = None,
    tag: Tag = None,
    trainable: Trainable = None,
    quality_min: QualityMin = None,
    quality_max: QualityMax = None,
    score: Score = None,
    reward_min: RewardMin = None,
    reward_max: RewardMax = None,
    version_min: VersionMin = None,
    version_max: VersionMax = None,
    text: Text = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Count groups, trajectories, steps and tokens, and each reason why something is not ready: of what the lists show."""
    given = locals()
    from claw.pool.listing import show_stats

    raise typer.Exit(show_stats(_filter(given), prefix=prefix, as_json=as_json))


@pool.command()
def steps(
    channel: Channel = None,
    group: Group = None,
    trajectory: Trajectory = None,
    agent: Agent = None,
    tag: Tag = None,
    trainable: Trainable = None,
    quality_min: QualityMin = None,
    quality_max: QualityMax = None,
    score: Score = None,
    reward_min: RewardMin = None,
    reward_max: RewardMax = None,
    version_min: VersionMin = None,
    version_max: VersionMax = None,
    text: Text = None,
    limit: Limit = 20,
    after: After = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """List steps (model calls)."""
    _list("steps", locals())


@pool.command("groups", help="List groups.")
@pool.command("trajectories", help="List trajectories.")
def trajectories_and_groups(
    context: typer.Context,
    channel: Channel = None,
    group: Group = None,
    trajectory: Trajectory = None,
    agent: Agent = None,
    tag: Tag = None,
    ready: Ready = None,
    trainable: Trainable = None,
    quality_min: QualityMin = None,
    quality_max: QualityMax = None,
    score: Score = None,
    reward_min: RewardMin = None,
    reward_max: RewardMax = None,
    version_min: VersionMin = None,
    version_max: VersionMax = None,
    text: Text = None,
    limit: Limit = 20,
    after: After = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """One function for two commands, which take the same filters and are told apart by their name."""
    assert context.info_name is not None  # typer names every command
    _list(context.info_name, locals())


@pool.command()
def why(
    name: Annotated[str, typer.Argument(metavar="ID", help="Group, trajectory or call.")],
    spec: Spec = None,
    preset: Preset = None,
    run: RunId = None,
    version: Version = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Tell why something is not ready or was left out, or when it was trained. Exit 1 when the pool has no such id."""
    from claw.pool.why import explain

    asked = explain(name, spec_file=spec, preset=preset, run_id=run, version=version, prefix=prefix, as_json=as_json)
    raise typer.Exit(asked)


@pool.command()
def curate(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Calls, trajectories or groups.")] = None,
    set_trainable: Annotated[bool | None, typer.Option("--train/--no-train", help="May it be trained on?")] = None,
    quality: Annotated[float | None, typer.Option(help="Quality, by custom 0 to 1.")] = None,
    set_score: Annotated[
        list[str] | None,
        typer.Option(metavar="SCORE", help="In place of a scorer's: entropy@1=0.9; may be repeated."),
    ] = None,
    set_tag: Annotated[list[str] | None, typer.Option(help="Tags that replace those it has; may be repeated.")] = None,
    because: Annotated[str | None, typer.Option("--why", help="Kept as the note.")] = None,
    who: Annotated[str | None, typer.Option(envvar="USER", help="Who judges.")] = None,
    undo: Annotated[str | None, typer.Option(help="Take a curation (or one event of it) back.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be published, publish nothing.")] = False,
    channel: Channel = None,
    group: Group = None,
    trajectory: Trajectory = None,
    agent: Agent = None,
    tag: Tag = None,
    trainable: Trainable = None,
    quality_min: QualityMin = None,
    quality_max: QualityMax = None,
    score: Score = None,
    reward_min: RewardMin = None,
    reward_max: RewardMax = None,
    version_min: VersionMin = None,
    version_max: VersionMax = None,
    text: Text = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Judge steps by id or by filter (resolved to ids first). Exit 1 when it concerns no step."""
    given = locals()
    from claw.pool.curation import CurationRequest, check_alone, run_curation, run_undo
    from claw.pool.filter import given_scores

    judgement = CurationRequest(
        trainable=set_trainable,
        quality=quality,
        scores=given_scores(set_score or ()),
        tags=None if set_tag is None else tuple(set_tag),
        note=because,
    )
    if undo is not None:
        check_alone(ids or [], _filter(given), judgement)
        raise typer.Exit(run_undo(undo, who=who, dry_run=dry_run, prefix=prefix, as_json=as_json))
    raise typer.Exit(
        run_curation(ids or [], _filter(given), judgement, who=who, dry_run=dry_run, prefix=prefix, as_json=as_json)
    )


@pool.command()
def evict(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Trajectories, or groups with all of theirs.")],
    why: Annotated[str, typer.Option(help="Kept as the reason.")],
    who: Annotated[str | None, typer.Option(envvar="USER", help="Who evicts.")] = None,
    group: Annotated[str | None, typer.Option(help="Of this group only: where several have such a trajectory.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be evicted, publish nothing.")] = False,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Erase trajectories from the pool, for good; their facts stay. Exit 1, none erased, when an id is unknown."""
    from claw.pool.evict import run_evict

    raise typer.Exit(run_evict(ids, group, why=why, who=who, dry_run=dry_run, prefix=prefix, as_json=as_json))


@pool.command()
def batch(
    spec: Spec = None,
    preset: Preset = None,
    run: RunId = None,
    version: Version = None,
    explain: Annotated[bool, typer.Option("--explain", help="Explain each field of a spec, and the presets.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Name the groups, too; --json always does.")] = False,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Preview the next batch of a spec: counts, tokens saved by shared prefixes, and why each other group is left out."""
    if explain:
        from claw.pool.spec_help import show_knobs

        raise typer.Exit(show_knobs(as_json=as_json))
    from claw.pool.preview import preview

    shown = preview(
        spec_file=spec,
        preset=preset,
        run_id=run,
        version=version,
        prefix=prefix,
        verbose=verbose,
        as_json=as_json,
    )
    raise typer.Exit(shown)


def _list(kind: str, given: dict[str, Any]) -> None:  # a command's own arguments
    from claw.pool.listing import show_page

    page = {name: given[name] for name in ("limit", "after", "prefix", "as_json")}
    raise typer.Exit(show_page(kind, _filter(given), **page))


def _filter(given: dict[str, Any]) -> Any:  # datapool.view.query.PoolFilter, which is imported late
    from claw.pool.filter import filter_of

    return filter_of(given)

"""What a person types. Every command: results on stdout, logs on stderr; exit 0 done, 1 the answer is no, 2 it could not run.

Heavy imports stay inside the commands, so that `--help` is instant.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from claw.errors import CannotRun
from claw.pool.commands import pool
from datapool.errors import PoolError
from eventlog.errors import LogError
from schemas.errors import UndecodableRecord
from schemas.runtime.errors import ProcessError
from schemas.runtime.logs import drain_logs, log_to_stderr

app = typer.Typer(
    name="claw",
    help="Claw-R1, event-sourced: agents learn through a Kafka log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
STACK, AUTHORS, ENGINEERS, DATA, OPERATORS = (
    "The local stack",
    "Agent authors",
    "RL engineers",
    "Data people",
    "Operators",
)
REFUSALS = (CannotRun, ProcessError, LogError, PoolError, UndecodableRecord)
"""A missing precondition; a process that does not run; a log that is not there, or not whole any more; records that this version does not read."""
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object (or JSON lines) on stdout.")]
Device = Annotated[
    str,
    typer.Option(envvar="CLAW_DEVICE", help="auto, cpu or cuda; of trainer and worker alike. auto: as vLLM's build."),
]
Prefix = Annotated[str, typer.Option(envvar="CLAW_LOG_PREFIX", help="Prefix of the topics.")]


app.add_typer(pool, rich_help_panel=DATA)


@app.command(rich_help_panel=STACK)
def demo(
    seed: Annotated[int, typer.Option(help="Of the tiny model, the tasks and the training.")] = 0,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="0 is the control: nothing is learnt.")] = 5e-4,
    batches_max: Annotated[int, typer.Option(min=1, help="Stop after this many batches.")] = 60,
    batches_min: Annotated[int, typer.Option(min=1, help="Do not stop before.")] = 25,
    prefix: Prefix = "claw",
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Run everything on this machine: a tiny agent learns a tool-use task through the log."""
    from claw.demo.run import DemoSettings, run_demo

    settings = DemoSettings(
        seed=seed,
        learning_rate=learning_rate,
        batches_max=batches_max,
        batches_min=batches_min,
        prefix=prefix,
        device=device,
    )
    raise typer.Exit(run_demo(settings, as_json=as_json))


@app.command(rich_help_panel=STACK)
def up(
    model: Annotated[Path | None, typer.Option(help="HF model directory: also starts a rollout worker.")] = None,
    config: Annotated[Path | None, typer.Option(help="Trainer settings (YAML): also starts a trainer.")] = None,
    port: Annotated[int, typer.Option(help="Of the gateway; 0 takes a free one.")] = 8000,
    prefix: Prefix = "claw",
    device: Device = "auto",
    foreground: Annotated[bool, typer.Option(help="Stay; Ctrl-C stops everything.")] = False,
) -> None:
    """Start broker, gateway and streams (and a worker, and a trainer) and keep them running."""
    from claw.local.up import UpSettings, run_up

    settings = UpSettings(model=model, config=config, port=port, prefix=prefix, device=device)
    raise typer.Exit(run_up(settings, foreground=foreground))


@app.command(rich_help_panel=STACK)
def down() -> None:
    """Stop what `claw up` started."""
    from claw.local.up import run_down

    raise typer.Exit(run_down())


@app.command(rich_help_panel=STACK)
def status(as_json: AsJson = False) -> None:
    """List the components of the running stack: name, pid, state. Exit 1 when nothing runs."""
    from claw.local.status import show_status

    raise typer.Exit(show_status(as_json=as_json))


@app.command(rich_help_panel=STACK, context_settings=PASS_ON)
def broker(context: typer.Context) -> None:
    """Open the kept broker: `claw broker` runs it until Ctrl-C; `claw broker tool NAME ARGS…` runs a tool of Kafka's."""
    from claw.local.broker_command import run_broker

    raise typer.Exit(run_broker(context.args))


@app.command(rich_help_panel=AUTHORS, context_settings=PASS_ON)
def gateway(context: typer.Context) -> None:
    """Run the gateway (`claw gateway --help`)."""
    become("gateway", context.args)


@app.command(rich_help_panel=AUTHORS, context_settings=PASS_ON)
def agents(context: typer.Context) -> None:
    """Run white-box agents (`claw agents run --flow module:Class`)."""
    become("agentflow", context.args)


@app.command(rich_help_panel=ENGINEERS, context_settings=PASS_ON)
def train(context: typer.Context) -> None:
    """Run a trainer (`claw train --config F`)."""
    become("trainer", context.args)


@app.command(rich_help_panel=ENGINEERS, context_settings=PASS_ON)
def rollout(context: typer.Context) -> None:
    """Run a rollout worker (`claw rollout --model M`)."""
    become("rollout", context.args)


@app.command(rich_help_panel=DATA, context_settings=PASS_ON)
def quality(context: typer.Context) -> None:
    """Score captured calls by pure functions (`claw quality --help`)."""
    become("consumers.quality", context.args)


@app.command(rich_help_panel=DATA)
def replay(
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Name in the catalogue; may be repeated. Default: the facts, calls and rewards."),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="beginning, end, an offset, or an ISO time (UTC).")
    ] = "beginning",
    end: Annotated[str, typer.Option("--to", help="As --from; the record there is not meant any more.")] = "end",
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", help="NAME=VALUE: type, key, a field (group, trajectory, call, …) or a header."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")] = None,
    speed: Annotated[
        float, typer.Option(min=0, help="1: the original pace of all topics together; 10: ten times; 0: at once.")
    ] = 0,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC|FILE", help="An existing topic (of one --topic), or a file of JSON lines (*.jsonl)."
        ),
    ] = None,
    force: Annotated[bool, typer.Option(help="Into a topic of facts, too.")] = False,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Print a range of some topics in order of time, or write it into a file or another topic."""
    from claw.data.replay import FACTS, ReplaySettings, run_replay

    asked = ReplaySettings(
        topics=topics or FACTS,
        start=start,
        end=end,
        filters=filters or (),
        limit=limit,
        speed=speed,
        into=into,
        force=force,
        prefix=prefix,
    )
    raise typer.Exit(run_replay(asked, as_json=as_json))


@app.command(rich_help_panel=DATA)
def export(
    out: Annotated[Path, typer.Option(help="Directory for the dataset: new or empty.")],
    spec: Annotated[
        Path | None, typer.Option(help="Batch spec (YAML or JSON); without: all that was captured.")
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="beginning, earliest (what retention left), an offset, or a manifest.")
    ] = "beginning",
    end: Annotated[str, typer.Option("--to", help="end, an offset, or a manifest: where that dataset ends.")] = "end",
    manifest: Annotated[Path | None, typer.Option(help="Make this dataset again, bit for bit.")] = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Write a dataset as Parquet, folded from the facts; exit 1 when a manifest gave other bytes."""
    from claw.data.export import ExportSettings, run_export

    asked = ExportSettings(out=out, spec=spec, start=start, end=end, manifest=manifest, prefix=prefix)
    raise typer.Exit(run_export(asked, as_json=as_json))


@app.command(rich_help_panel=DATA)
def dataset(
    action: Annotated[str, typer.Argument(help="list, or diff.")],
    names: Annotated[list[str] | None, typer.Argument(help="Two ids or paths, for diff.")] = None,
    directory: Annotated[Path | None, typer.Option("--in", help="Where to look instead of the claw home.")] = None,
    as_json: AsJson = False,
) -> None:
    """List exported datasets, or compare two; exit 1 when they differ."""
    from claw.data.datasets import run_dataset

    raise typer.Exit(run_dataset(action, names or [], directory, as_json=as_json))


@app.command(rich_help_panel=DATA)
def rebuild(
    to: Annotated[str, typer.Option(help="end, a time (ISO 8601, UTC), or a file of offsets (a manifest).")] = "end",
    generation: Annotated[int | None, typer.Option(min=1, help="To make; default: the one after that in use.")] = None,
    manifest: Annotated[Path | None, typer.Option(help="Write the offsets here.")] = None,
    flush_facts: Annotated[int, typer.Option(min=1, help="Facts in one transaction.")] = 5000,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Fold all facts into the next generation of the pool; killed and started again it goes on."""
    from claw.data.rebuild import RebuildSettings, run_rebuild

    asked = RebuildSettings(to=to, generation=generation, manifest=manifest, flush_facts=flush_facts, prefix=prefix)
    raise typer.Exit(run_rebuild(asked, as_json=as_json))


@app.command(rich_help_panel=DATA)
def lineage(
    name: Annotated[str, typer.Argument(metavar="ID", help="RUN/VERSION of weights, or a group, trajectory or call.")],
    every: Annotated[bool, typer.Option("--all", help="Of a version: every batch in it, not only the last.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Trajectories at most; default: 20, with --json all.")
    ] = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Trace weights to the requests behind them, or a call to the versions trained on it; exit 1 when none was."""
    from claw.data.lineage import run_lineage

    raise typer.Exit(run_lineage(name, every=every, limit=limit, prefix=prefix, as_json=as_json))


@app.command(rich_help_panel=DATA)
def verify(
    replied: Annotated[Path | None, typer.Option(help="A file with one x-claw-call-id per line.")] = None,
    run: Annotated[str | None, typer.Option(help="Only the plans of this run; default: of every run.")] = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Check the pool against the facts, and that no call is lost and no step trained twice; exit 1 names who."""
    from claw.data.verify import run_verify

    raise typer.Exit(run_verify(replied, run, prefix=prefix, as_json=as_json))


@app.command(name="inspect", rich_help_panel=DATA)
def inspect_trajectory(
    trajectory_id: Annotated[str, typer.Argument(help="Trajectory, as in the reply's header x-claw-trajectory.")],
    group: Annotated[str | None, typer.Option(help="Group, where several have a trajectory of this name.")] = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Show one trajectory: its state, its calls with versions and rewards, and the conversation."""
    from claw.show.inspect import inspect

    raise typer.Exit(inspect(trajectory_id, group, prefix=prefix, as_json=as_json))


@app.command(rich_help_panel=OPERATORS, context_settings=PASS_ON)
def streams(context: typer.Context) -> None:
    """Run a stream processor (`claw streams --help`)."""
    become("streams", context.args)


@app.command(rich_help_panel=OPERATORS)
def dlq(
    action: Annotated[str, typer.Argument(help="list, show or redrive.")],
    ids: Annotated[list[str] | None, typer.Argument(help="Letters as PARTITION@OFFSET, for show and redrive.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Redrive all that --reason and --source leave.")] = False,
    reason: Annotated[str | None, typer.Option(help="Only letters of this reason, for example fold_bug.")] = None,
    source: Annotated[str | None, typer.Option(help="Only letters from this topic, for example calls.")] = None,
    pending: Annotated[bool, typer.Option(help="List only what was not redriven; reads the fact topics.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Redrive: only say what would be appended.")] = False,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """List dead letters, show one whole, or append them to their fact topic again, each once."""
    from claw.data.dlq import LetterQuery, run_dlq

    asked = LetterQuery(ids=ids or (), every=every, reason=reason, source=source, pending=pending, dry_run=dry_run)
    raise typer.Exit(run_dlq(action, asked, prefix=prefix, as_json=as_json))


@app.command(rich_help_panel=OPERATORS)
def topics(
    action: Annotated[str, typer.Argument(help="create, describe or diff.")],
    prefix: Prefix = "claw",
    partitions: Annotated[
        int, typer.Option(envvar="CLAW_LOG_PARTITIONS", help="Of every topic; never changed later.")
    ] = 8,
    replication: Annotated[int, typer.Option(envvar="CLAW_LOG_REPLICATION", help="3 outside the local stack.")] = 1,
    generation: Annotated[int, typer.Option(envvar="CLAW_LOG_GENERATION", min=1, help="Of the pool.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Create, describe or compare the topics of the catalogue."""
    from claw.show.topics import run_topics

    wanted = {"partitions": partitions, "replication": replication, "generation": generation}
    raise typer.Exit(run_topics(action, prefix=prefix, wanted=wanted, as_json=as_json))


@app.command(rich_help_panel=OPERATORS)
def doctor(prefix: Prefix = "claw", as_json: AsJson = False) -> None:
    """Check this machine and the broker; exit 1 when something would not hold."""
    from claw.show.doctor import run_doctor

    raise typer.Exit(run_doctor(prefix=prefix, as_json=as_json))


def become(room: str, arguments: list[str]) -> NoReturn:
    """Turns this process into `python -m <room>`, so that signals and the exit code are the room's own."""
    sys.stdout.flush()
    drain_logs()
    os.execv(sys.executable, [sys.executable, "-m", room, *arguments])


def main() -> None:
    """Entry point: what the command cannot do without is one line on stderr and exit code 2, never a traceback."""
    log_to_stderr("warning")  # a person at a terminal wants to see what went wrong, and no more
    try:
        app()
    except REFUSALS as error:
        print(f"claw: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

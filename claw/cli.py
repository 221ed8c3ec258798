"""What a person types. Every command: results on stdout, logs on stderr; exit 0 done, 1 the answer is no, 2 it could not run.

Heavy imports stay inside the commands, so that `--help` is instant.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from claw.errors import CannotRun
from schemas.logs import log_to_stderr

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
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object (or JSON lines) on stdout.")]
Prefix = Annotated[str, typer.Option(envvar="CLAW_LOG_PREFIX", help="Prefix of the topics.")]


@app.command(rich_help_panel=STACK)
def demo(
    seed: Annotated[int, typer.Option(help="Of the tiny model, the tasks and the training.")] = 0,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="0 is the control: nothing is learnt.")] = 5e-4,
    batches_max: Annotated[int, typer.Option(min=1, help="Stop after this many batches.")] = 60,
    batches_min: Annotated[int, typer.Option(min=1, help="Do not stop before.")] = 25,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Run everything on this machine: a tiny agent learns a tool-use task through the log."""
    from claw.demo import DemoSettings, run_demo

    settings = DemoSettings(
        seed=seed, learning_rate=learning_rate, batches_max=batches_max, batches_min=batches_min, prefix=prefix
    )
    raise typer.Exit(run_demo(settings, as_json=as_json))


@app.command(rich_help_panel=STACK)
def up(
    model: Annotated[Path | None, typer.Option(help="HF model directory: also starts a rollout worker.")] = None,
    config: Annotated[Path | None, typer.Option(help="Trainer settings (YAML): also starts a trainer.")] = None,
    port: Annotated[int, typer.Option(help="Of the gateway; 0 takes a free one.")] = 8000,
    prefix: Prefix = "claw",
    foreground: Annotated[bool, typer.Option(help="Stay; Ctrl-C stops everything.")] = False,
) -> None:
    """Start broker, gateway and streams (and a worker, and a trainer) and keep them running."""
    from claw.up import UpSettings, run_up

    raise typer.Exit(run_up(UpSettings(model=model, config=config, port=port, prefix=prefix), foreground=foreground))


@app.command(rich_help_panel=STACK)
def down() -> None:
    """Stop what `claw up` started."""
    from claw.up import run_down

    raise typer.Exit(run_down())


@app.command(rich_help_panel=STACK)
def status(as_json: AsJson = False) -> None:
    """List the components of the running stack: name, pid, state. Exit 1 when nothing runs."""
    from claw.status import show_status

    raise typer.Exit(show_status(as_json=as_json))


@app.command(rich_help_panel=STACK, context_settings=PASS_ON)
def broker(context: typer.Context) -> None:
    """Open the kept broker: `claw broker` runs it until Ctrl-C; `claw broker tool NAME ARGS…` runs a tool of Kafka's."""
    from claw.broker_command import run_broker

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


@app.command(rich_help_panel=DATA)
def replay(
    topic: Annotated[str, typer.Option(help="Name in the catalogue, for example calls or datapool.groups.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")] = None,
    start: Annotated[str, typer.Option("--from", help="beginning, or an offset in every partition.")] = "beginning",
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Print a topic's records in the order of each partition."""
    from claw.replay import replay_topic

    raise typer.Exit(replay_topic(topic, prefix=prefix, limit=limit, start=start, as_json=as_json))


@app.command(name="inspect", rich_help_panel=DATA)
def inspect_trajectory(
    trajectory_id: Annotated[str, typer.Argument(help="Trajectory, as in the reply's header x-claw-trajectory.")],
    group: Annotated[str | None, typer.Option(help="Group, where several have a trajectory of this name.")] = None,
    prefix: Prefix = "claw",
    as_json: AsJson = False,
) -> None:
    """Show one trajectory: its state, its calls with versions and rewards, and the conversation."""
    from claw.inspection import inspect

    raise typer.Exit(inspect(trajectory_id, group, prefix=prefix, as_json=as_json))


@app.command(rich_help_panel=OPERATORS, context_settings=PASS_ON)
def streams(context: typer.Context) -> None:
    """Run a stream processor (`claw streams --help`)."""
    become("streams", context.args)


@app.command(rich_help_panel=OPERATORS)
def topics(
    action: Annotated[str, typer.Argument(help="create, describe or diff.")],
    prefix: Prefix = "claw",
    partitions: Annotated[
        int, typer.Option(envvar="CLAW_LOG_PARTITIONS", help="Of every topic; never changed later.")
    ] = 8,
    replication: Annotated[int, typer.Option(envvar="CLAW_LOG_REPLICATION", help="3 outside the local stack.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Create, describe or compare the topics of the catalogue."""
    from claw.topics import run_topics

    raise typer.Exit(run_topics(action, prefix=prefix, partitions=partitions, replication=replication, as_json=as_json))


@app.command(rich_help_panel=OPERATORS)
def doctor(prefix: Prefix = "claw", as_json: AsJson = False) -> None:
    """Check this machine and the broker; exit 1 when something would not hold."""
    from claw.doctor import run_doctor

    raise typer.Exit(run_doctor(prefix=prefix, as_json=as_json))


def become(room: str, arguments: list[str]) -> NoReturn:
    """Turns this process into `python -m <room>`, so that signals and the exit code are the room's own."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", room, *arguments])


def main() -> None:
    """Entry point: a missing precondition is one line on stderr and exit code 2, never a traceback."""
    log_to_stderr("warning")  # a person at a terminal wants to see what went wrong, and no more
    try:
        app()
    except CannotRun as error:
        print(f"claw: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

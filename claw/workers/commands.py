"""The commands of `claw workers`. Each only hands its arguments to a function of this folder."""

from typing import Annotated

import typer

from claw_r1.claw.answers import Answers
from claw_r1.claw.options import Commands, Prefix

workers = Commands(
    name="workers",
    help="List rollout workers, drain one, check what one has loaded.",
)
WorkerArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="As `claw workers list` shows it; its end behind a dash is enough: rollout-2."),
]
Everyone = Annotated[bool, typer.Option("--all", help="Include those that ended or fell silent over an hour ago.")]
Timeout = Annotated[float, typer.Option(min=1, help="Seconds to wait for the worker's report that it was done.")]


@workers.command("list")
def list_(everyone: Everyone = False, prefix: Prefix = "claw") -> Answers:
    """List the workers: version, versions behind, state and why, calls in flight, KV cache, the last sync by phases."""
    from claw_r1.claw.workers.show import run_list

    return run_list(prefix=prefix, everyone=everyone)


@workers.command()
def drain(worker: WorkerArgument, timeout_s: Timeout = 120.0, prefix: Prefix = "claw") -> Answers:
    """Let a worker finish its running replies and end; new calls go to others."""
    from claw_r1.claw.workers.ask import run_drain

    return run_drain(worker, prefix=prefix, timeout_s=timeout_s)


@workers.command()
def probe(worker: WorkerArgument, timeout_s: Timeout = 60.0, prefix: Prefix = "claw") -> Answers:
    """Let a worker compare its logprobs with the trainer's; exit 1 when that takes it out, or does not come."""
    from claw_r1.claw.workers.ask import run_probe

    return run_probe(worker, prefix=prefix, timeout_s=timeout_s)

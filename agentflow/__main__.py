"""`python -m claw_r1.agentflow run|eval`: one JSON object on stdout, logs and progress on stderr; exit 0 done, 1 no episode completed,
2 could not run, or not write the result's file."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from claw_r1.agentflow.errors import AgentFlowError, GatewayUnavailable, InvalidPlan
from claw_r1.agentflow.settings import AgentFlowSettings, EvaluationPlan, FlowSettings, RunPlan, keep_writable
from claw_r1.runtime.command_line import CommandLine, SettingsRefused
from claw_r1.runtime.modules import needs_extra
from claw_r1.schemas.http import Channel

if TYPE_CHECKING:
    from claw_r1.agentflow.client import GatewayClient
    from claw_r1.agentflow.evaluate import Evaluation
    from claw_r1.agentflow.flow import AgentFlow
    from claw_r1.agentflow.stats import Summary
    from claw_r1.agentflow.tasks import Tasks

RUN = "Play groups of episodes until stopped."
EVALUATE = "Play each task once, greedily, on the channel val; with --pass-at also sampled."


@needs_extra("agentflow")
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON object."""
    parser, run, evaluation = _command_lines()
    flags = parser.parse_args(arguments)
    # Heavy imports after parsing, so that --help is instant.
    import orjson

    from claw_r1.runtime.logs import log_to_stderr

    log_to_stderr()
    try:
        result: Summary | Evaluation = (
            asyncio.run(_run(run, flags)) if flags.verb == "run" else asyncio.run(_evaluate(evaluation, flags))
        )
    except (AgentFlowError, SettingsRefused) as error:
        print(f"agentflow: {error}", file=sys.stderr)
        return 2
    printed = orjson.dumps(result) + b"\n"
    sys.stdout.buffer.write(printed)
    if flags.verb == "eval" and flags.out:
        try:
            flags.out.write_bytes(printed)
        except OSError as error:
            print(f"agentflow: {flags.out} is not whole, the result stands on stdout alone: {error}", file=sys.stderr)
            return 2
    if result.all_failed:
        print("agentflow: no episode completed; see episode_failed above", file=sys.stderr)
    return 1 if result.all_failed else 0


def _command_lines() -> tuple[argparse.ArgumentParser, CommandLine, CommandLine]:
    parser = argparse.ArgumentParser(
        prog="claw agents", description="Play agents through the gateway.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="verb", required=True)
    run, evaluation = (
        commands.add_parser(name, help=text, allow_abbrev=False) for name, text in (("run", RUN), ("eval", EVALUATE))
    )
    for each in (run, evaluation):
        each.add_argument("--json", action="store_true", help="One JSON object on stdout, which is also the default.")
    evaluation.add_argument("--out", type=Path, metavar="PATH", help="File for the result, with its transcripts.")
    classes = (FlowSettings, RunPlan, AgentFlowSettings), (FlowSettings, EvaluationPlan, AgentFlowSettings)
    return (
        parser,
        CommandLine("claw agents run", RUN, *classes[0], parser=run),
        CommandLine("claw agents eval", EVALUATE, *classes[1], parser=evaluation),
    )


async def _run(line: CommandLine, flags: argparse.Namespace) -> "Summary":
    from claw_r1.agentflow.runner import Runner
    from claw_r1.agentflow.stats import ProgressLines

    plan = line.read(RunPlan, flags)
    flow, tasks = _agent(line, flags, plan.deadline_s)
    tasks, held_out = _held_out(plan, flow, tasks)
    client, evaluation_client = (
        _client(line, flags, flow, plan.run_id, it) for it in (plan.channel, Channel.VALIDATION)
    )
    async with client, evaluation_client:
        await _prepare(flow, client)
        progress = ProgressLines(sys.stderr, plan.groups_max, client.settings.progress_interval_s)
        runner = Runner(
            flow, client, plan, progress, evaluation_client=evaluation_client, tasks=tasks, held_out=held_out
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, runner.stop)
        return await runner.run()


async def _evaluate(line: CommandLine, flags: argparse.Namespace) -> "Evaluation":
    from claw_r1.agentflow.evaluate import evaluate

    plan = line.read(EvaluationPlan, flags)
    keep_writable(flags.out)
    flow, tasks = _agent(line, flags, plan.deadline_s)
    async with _client(line, flags, flow, plan.run_id, Channel.VALIDATION) as client:
        await _prepare(flow, client)
        work = asyncio.ensure_future(evaluate(flow, client, plan, tasks))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        try:
            return await work
        except asyncio.CancelledError as stop:
            raise AgentFlowError("the evaluation was stopped before its end") from stop


async def _prepare(flow: "AgentFlow", client: "GatewayClient") -> None:
    """Raises InvalidPlan where a command's model must be named. A gateway that cannot say yet is asked by each episode."""
    from claw_r1.agentflow.black_box import BlackBox

    if isinstance(flow, BlackBox):
        with suppress(GatewayUnavailable):
            await flow.choose_model(client.models)


def _agent(line: CommandLine, flags: argparse.Namespace, deadline_s: float | None) -> "tuple[AgentFlow, Tasks]":
    from claw_r1.agentflow.black_box import BlackBox
    from claw_r1.agentflow.flow import load_flow
    from claw_r1.agentflow.tasks import FlowTasks, read_tasks

    settings = line.read(FlowSettings, flags)
    settings.keep_deadline(deadline_s)
    tasks = None if settings.tasks is None else read_tasks(settings.tasks)
    if settings.command is None:
        flow = load_flow(settings.flow or "")
    else:
        limits = line.read(AgentFlowSettings, flags)
        if limits.episode_tokens_max is not None:
            raise InvalidPlan("--episode-tokens-max: the tokens of a --command are not counted")
        flow = BlackBox(settings, limits.api_key)
        flow.check((flow.task(0),) if tasks is None else tasks.tasks)
    return flow, tasks or FlowTasks(flow, settings.flow or settings.command)


def _held_out(plan: RunPlan, flow: "AgentFlow", tasks: "Tasks") -> "tuple[Tasks, Tasks | None]":
    """The tasks to train on, and those of the evaluations that are none of them. Raises InvalidPlan."""
    import structlog

    from claw_r1.agentflow.black_box import BlackBox
    from claw_r1.agentflow.tasks import HoldOut, read_tasks

    log = structlog.get_logger()
    held_out: Tasks
    if plan.eval_tasks is not None:
        if plan.eval_tasks.name.isdecimal() and not plan.eval_tasks.exists():
            raise InvalidPlan(f"--eval-tasks {plan.eval_tasks}: no such file; how many are evaluated is --eval-count")
        own = read_tasks(plan.eval_tasks)
        if isinstance(flow, BlackBox):
            flow.check(own.tasks)
        hold_out, held_out = HoldOut.listed(own), own
    elif plan.eval_holdout is not None:
        hold_out = HoldOut.share(plan.eval_holdout)
        held_out = hold_out.evaluated(tasks)
    else:
        if plan.eval_every is not None:
            log.warning("evaluated_on_trained_tasks", advice="--eval-tasks FILE or --eval-holdout SHARE holds some out")
        return tasks, None
    trained = hold_out.trained(tasks)
    log.info("tasks_held_out", evaluated_from=held_out.count, trained_on=trained.count, of=tasks.count)
    return trained, held_out


def _client(
    line: CommandLine, flags: argparse.Namespace, flow: "AgentFlow", run_id: str | None, channel: str
) -> "GatewayClient":
    from claw_r1.agentflow.client import GatewayClient

    settings, limits, agent = line.read(FlowSettings, flags), line.read(AgentFlowSettings, flags), type(flow).__name__
    return GatewayClient(
        settings.gateway, run_id=run_id, channel=channel, agent=agent, model=settings.model, settings=limits
    )


if __name__ == "__main__":
    raise SystemExit(main())

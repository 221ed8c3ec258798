"""`python -m agentflow run|eval`: one JSON object on stdout, logs and progress on stderr; exit 0 done, 2 could not run."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentflow.errors import AgentFlowError, GatewayUnavailable, InvalidPlan
from agentflow.settings import AgentFlowSettings, EvaluationPlan, FlowSettings, RunPlan
from schemas.http import Channel
from schemas.runtime.command_line import CommandLine, SettingsRefused

if TYPE_CHECKING:
    from agentflow.client import GatewayClient
    from agentflow.evaluate import Evaluation
    from agentflow.flow import AgentFlow
    from agentflow.stats import Summary
    from agentflow.tasks import Tasks

RUN = "Play groups of episodes until stopped."
EVALUATE = "Play each task once, greedily, on the channel val; with --pass-at also sampled."


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON object."""
    parser, run, evaluation = _command_lines()
    flags = parser.parse_args(arguments)
    # Heavy imports after parsing, so that --help is instant.
    import orjson

    from schemas.runtime.logs import log_to_stderr

    log_to_stderr()
    try:
        result = asyncio.run(_run(run, flags) if flags.verb == "run" else _evaluate(evaluation, flags))
    except (AgentFlowError, SettingsRefused) as error:
        print(f"agentflow: {error}", file=sys.stderr)
        return 2
    printed = orjson.dumps(result) + b"\n"
    sys.stdout.buffer.write(printed)
    if flags.verb == "eval" and flags.out:
        flags.out.write_bytes(printed)
    return 0


def _command_lines() -> tuple[argparse.ArgumentParser, CommandLine, CommandLine]:
    parser = argparse.ArgumentParser(
        prog="claw agents", description="Play agents through the gateway.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="verb", required=True)
    run, evaluation = (
        commands.add_parser(name, help=text, allow_abbrev=False) for name, text in (("run", RUN), ("eval", EVALUATE))
    )
    for each in (run, evaluation):
        each.add_argument("--json", action="store_true", help="One JSON object on stdout; so it is without it, too.")
    evaluation.add_argument("--out", type=Path, metavar="PATH", help="File for the result, with its transcripts.")
    classes = (FlowSettings, RunPlan, AgentFlowSettings), (FlowSettings, EvaluationPlan, AgentFlowSettings)
    return (
        parser,
        CommandLine("claw agents run", RUN, *classes[0], parser=run),
        CommandLine("claw agents eval", EVALUATE, *classes[1], parser=evaluation),
    )


async def _run(line: CommandLine, flags: argparse.Namespace) -> "Summary":
    from agentflow.runner import Runner
    from agentflow.stats import ProgressLines

    plan = line.read(RunPlan, flags)
    flow, tasks = _agent(line, flags, plan.deadline_s)
    client, evaluation_client = (
        _client(line, flags, flow, plan.run_id, it) for it in (plan.channel, Channel.VALIDATION)
    )
    async with client, evaluation_client:
        await _prepare(flow, client)
        progress = ProgressLines(sys.stderr, plan.groups_max, client.settings.progress_interval_s)
        runner = Runner(flow, client, plan, progress, evaluation_client=evaluation_client, tasks=tasks)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, runner.stop)
        return await runner.run()


async def _evaluate(line: CommandLine, flags: argparse.Namespace) -> "Evaluation":
    from agentflow.evaluate import evaluate

    plan = line.read(EvaluationPlan, flags)
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
    from agentflow.black_box import BlackBox

    if isinstance(flow, BlackBox):
        with suppress(GatewayUnavailable):
            await flow.choose_model(client.models)


def _agent(line: CommandLine, flags: argparse.Namespace, deadline_s: float | None) -> "tuple[AgentFlow, Tasks]":
    from agentflow.black_box import BlackBox
    from agentflow.flow import load_flow
    from agentflow.tasks import FlowTasks, read_tasks

    settings = line.read(FlowSettings, flags)
    settings.keep_deadline(deadline_s)
    tasks = None if settings.tasks is None else read_tasks(settings.tasks)
    if settings.command is None:
        flow = load_flow(settings.flow or "")
    else:
        limits = line.read(AgentFlowSettings, flags)
        if limits.episode_tokens_max is not None:
            raise InvalidPlan("--episode-tokens-max: nobody here counts the tokens of a --command")
        flow = BlackBox(settings, limits.api_key)
        flow.check((flow.task(0),) if tasks is None else tasks.tasks)
    return flow, tasks or FlowTasks(flow, settings.flow or settings.command)


def _client(
    line: CommandLine, flags: argparse.Namespace, flow: "AgentFlow", run_id: str | None, channel: str
) -> "GatewayClient":
    from agentflow.client import GatewayClient

    settings, limits, agent = line.read(FlowSettings, flags), line.read(AgentFlowSettings, flags), type(flow).__name__
    return GatewayClient(
        settings.gateway, run_id=run_id, channel=channel, agent=agent, model=settings.model, settings=limits
    )


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m agentflow run|eval`: one JSON object on stdout, logs and progress on stderr; exit 0 done, 2 could not run."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentflow.errors import AgentFlowError
from agentflow.settings import AgentFlowSettings, EvaluationPlan, FlowSettings, RunPlan
from schemas.http import Channel
from schemas.runtime.command_line import CommandLine, SettingsRefused

if TYPE_CHECKING:
    from agentflow.client import GatewayClient
    from agentflow.evaluate import Evaluation
    from agentflow.flow import AgentFlow
    from agentflow.stats import Summary

RUN = "Play groups of episodes until stopped."
EVALUATE = "Play each task once, greedily, on the channel val."


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run, print one JSON object."""
    parser, run, evaluation = _command_lines()
    flags = parser.parse_args(arguments)
    # Heavy imports after parsing, so that --help is instant.
    import orjson

    from schemas.runtime.logs import log_to_stderr

    log_to_stderr()
    try:
        result = asyncio.run(_run(run, flags) if flags.command == "run" else _evaluate(evaluation, flags))
    except (AgentFlowError, SettingsRefused) as error:
        print(f"agentflow: {error}", file=sys.stderr)
        return 2
    printed = orjson.dumps(result) + b"\n"
    sys.stdout.buffer.write(printed)
    if flags.command == "eval" and flags.out:
        flags.out.write_bytes(printed)
    return 0


def _command_lines() -> tuple[argparse.ArgumentParser, CommandLine, CommandLine]:
    parser = argparse.ArgumentParser(
        prog="claw agents", description="Play white-box agents through the gateway.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run, evaluation = (
        commands.add_parser(name, help=text, allow_abbrev=False) for name, text in (("run", RUN), ("eval", EVALUATE))
    )
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
    flow, client = _player(line, flags, plan.run_id, plan.channel)
    _, evaluation_client = _player(line, flags, plan.run_id, Channel.VALIDATION)
    async with client, evaluation_client:
        progress = ProgressLines(sys.stderr, plan.groups_max, client.settings.progress_interval_s)
        runner = Runner(flow, client, plan, progress, evaluation_client=evaluation_client)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, runner.stop)
        return await runner.run()


async def _evaluate(line: CommandLine, flags: argparse.Namespace) -> "Evaluation":
    from agentflow.evaluate import evaluate

    plan = line.read(EvaluationPlan, flags)
    flow, client = _player(line, flags, plan.run_id, Channel.VALIDATION)
    async with client:
        return await evaluate(flow, client, plan)


def _player(
    line: CommandLine, flags: argparse.Namespace, run_id: str | None, channel: str
) -> "tuple[AgentFlow, GatewayClient]":
    from agentflow.client import GatewayClient
    from agentflow.flow import load_flow

    settings, limits = line.read(FlowSettings, flags), line.read(AgentFlowSettings, flags)
    flow = load_flow(settings.flow)
    agent = type(flow).__name__
    return flow, GatewayClient(
        settings.gateway, run_id=run_id, channel=channel, agent=agent, model=settings.model, settings=limits
    )


if __name__ == "__main__":
    raise SystemExit(main())

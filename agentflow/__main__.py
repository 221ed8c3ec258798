"""`python -m agentflow run|eval`: one JSON object on stdout, logs and progress on stderr; exit 0 done, 2 could not run."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.http import Channel

if TYPE_CHECKING:
    from agentflow.evaluate import Evaluation
    from agentflow.stats import Summary


def main(argv: list[str] | None = None) -> int:
    """Parse, run, print one JSON object."""
    options = _parser().parse_args(argv)
    # Heavy imports after parsing, so that --help is instant.
    import orjson
    from pydantic import ValidationError

    from agentflow.errors import AgentFlowError
    from schemas.runtime.logs import log_to_stderr

    log_to_stderr()
    try:
        result = asyncio.run(_run(options) if options.command == "run" else _evaluate(options))
    except (AgentFlowError, ValidationError) as error:
        print(f"agentflow: {error}", file=sys.stderr)
        return 2
    printed = orjson.dumps(result) + b"\n"
    sys.stdout.buffer.write(printed)
    if options.command == "eval" and options.out:
        options.out.write_bytes(printed)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agentflow", description="White-box agents through the gateway.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="play groups of episodes until stopped")
    run.add_argument("--group-size", type=int, default=8, help="episodes per group")
    run.add_argument("--groups-max", type=int, help="stop after so many groups")
    run.add_argument("--channel", default=Channel.TRAIN)
    run.add_argument("--deadline-s", type=float, default=300.0, help="a group is closed after so many seconds")
    run.add_argument("--stats", type=Path, metavar="FILE", help="write counts there, every second and at the end")
    run.add_argument("--replied", type=Path, metavar="FILE", help="append the call id of every reply there")
    evaluate = commands.add_parser("eval", help="play each task once, greedily, on the channel val")
    evaluate.add_argument("--episodes", type=int, default=64)
    evaluate.add_argument("--out", type=Path, metavar="FILE", help="write the result there, too, transcripts included")
    for command, concurrency in ((run, 64), (evaluate, 32)):
        command.add_argument("--flow", required=True, metavar="MODULE:CLASS")
        command.add_argument("--gateway", required=True, metavar="URL")
        command.add_argument("--run-id", help="the training run that these calls belong to")
        command.add_argument("--model", help="model name, where the gateway serves several")
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--concurrency", type=int, default=concurrency, help="episodes at once")
    return parser


async def _run(options: argparse.Namespace) -> "Summary":
    from agentflow.client import GatewayClient
    from agentflow.flow import load_flow
    from agentflow.runner import Runner, RunPlan
    from agentflow.stats import ProgressLines

    plan = RunPlan(
        group_size=options.group_size,
        concurrency=options.concurrency,
        seed=options.seed,
        run_id=options.run_id,
        channel=options.channel,
        groups_max=options.groups_max,
        deadline_s=options.deadline_s,
        stats_path=options.stats,
        replied_path=options.replied,
    )
    flow = load_flow(options.flow)
    async with GatewayClient(
        options.gateway, run_id=plan.run_id, channel=plan.channel, agent=type(flow).__name__, model=options.model
    ) as client:
        progress = ProgressLines(sys.stderr, plan.groups_max, client.settings.progress_interval_s)
        runner = Runner(flow, client, plan, progress)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, runner.stop)
        return await runner.run()


async def _evaluate(options: argparse.Namespace) -> "Evaluation":
    from agentflow.client import GatewayClient
    from agentflow.evaluate import EvaluationPlan, evaluate
    from agentflow.flow import load_flow

    plan = EvaluationPlan(options.episodes, options.seed, options.concurrency, options.run_id)
    flow = load_flow(options.flow)
    async with GatewayClient(
        options.gateway, run_id=plan.run_id, channel=Channel.VALIDATION, agent=type(flow).__name__, model=options.model
    ) as client:
        return await evaluate(flow, client, plan)


if __name__ == "__main__":
    raise SystemExit(main())

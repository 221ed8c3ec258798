"""Evaluation on a channel that is never trained on: each task once at temperature 0, and for pass@k some sampled episodes of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean
from typing import Any

from agentflow.bodies import GroupSpec, TrajectoryId
from agentflow.client import GatewayClient, open_when_admitted
from agentflow.episode import Episode, EpisodeResult
from agentflow.flow import AgentFlow, play
from agentflow.seeds import derived_seed
from agentflow.settings import EvaluationPlan
from agentflow.tasks import FlowTasks, Tasks
from agentflow.version_evaluation import GREEDY
from schemas.http import Channel

FLOW_TASKS = 64


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came of it; a failed episode counts as reward 0."""

    reward_mean: float
    """Of the greedy episodes."""
    episodes_failed: int
    policy_versions: tuple[str, ...]
    calls_replied: int
    episodes: tuple[EpisodeResult, ...]
    """The greedy ones in the order of the tasks, transcripts included."""
    samples: int
    """Sampled episodes per task; 0: none."""
    pass_at: Mapping[str, float]
    """k -> the mean over tasks of pass@k among the sampled episodes."""
    sampled_mean: float | None
    """Mean reward of the sampled episodes."""


def pass_at_k(samples: int, solutions: int, k: int) -> float:
    """The chance that k of n samples, drawn without replacement, hold a solution: 1 - C(n-c, k) / C(n, k).

    Unbiased for the chance that k fresh samples do; Chen et al. 2021, "Evaluating large language models trained on code".
    """
    return 1.0 - comb(samples - solutions, k) / comb(samples, k)


async def evaluate(
    flow: AgentFlow, client: GatewayClient, plan: EvaluationPlan, tasks: Tasks | None = None
) -> Evaluation:
    """Play all episodes. The client should carry the channel `val`. Raises GatewayUnavailable, RequestRefused."""
    order = tasks or FlowTasks(flow)
    slots = asyncio.Semaphore(plan.concurrency)

    async def group(index: int, size: int, sampling: Mapping[str, Any] | None) -> list[EpisodeResult]:
        seed = derived_seed(Channel.VALIDATION, plan.seed, index)
        task = order.at(index, Channel.VALIDATION, plan.seed)
        spec = GroupSpec(size, Channel.VALIDATION, plan.run_id, task, plan.deadline_s, admission=False)
        async with slots:
            await open_when_admitted(client, spec, on_refusal=lambda _: None)

        async def member(number: int) -> EpisodeResult:
            own_seed = seed if sampling is not None else derived_seed(seed, number)
            who = TrajectoryId.new(spec.group_id)
            async with slots:
                return await play(
                    flow, Episode(client, who, task=task, seed=own_seed, sampling=sampling), client.settings
                )

        return list(await asyncio.gather(*(member(number) for number in range(size))))

    count = plan.episodes or order.count or FLOW_TASKS
    greedy = asyncio.gather(*(group(index, 1, GREEDY) for index in range(count)))
    sampled = asyncio.gather(
        *(group(index, plan.samples_each, None) for index in range(count if plan.samples_each else 0))
    )
    of_greedy, of_sampled = await asyncio.gather(greedy, sampled)  # whoever cancels this cancels both
    return _evaluation([episode for episodes in of_greedy for episode in episodes], of_sampled, plan)


def _evaluation(
    greedy: Sequence[EpisodeResult], sampled: Sequence[Sequence[EpisodeResult]], plan: EvaluationPlan
) -> Evaluation:
    samples = [episode for group in sampled for episode in group]
    everything = [*greedy, *samples]
    solutions = [
        sum(episode.status == "completed" and episode.reward >= plan.solved for episode in group) for group in sampled
    ]
    return Evaluation(
        reward_mean=fmean(map(_worth, greedy)),
        episodes_failed=sum(result.status == "failed" for result in everything),
        policy_versions=tuple(sorted({version for result in everything for version in result.policy_versions})),
        calls_replied=sum(result.calls for result in everything),
        episodes=tuple(greedy),
        samples=plan.samples_each,
        pass_at={
            str(k): fmean(pass_at_k(plan.samples_each, solved, k) for solved in solutions) for k in plan.pass_at_numbers
        },
        sampled_mean=fmean(map(_worth, samples)) if samples else None,
    )


def _worth(result: EpisodeResult) -> float:
    return result.reward if result.status == "completed" else 0.0

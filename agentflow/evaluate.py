"""Greedy evaluation: each task once, at temperature 0, on a channel that is never trained on."""

import asyncio
from dataclasses import dataclass
from statistics import fmean

from agentflow.bodies import GroupSpec, TrajectoryId
from agentflow.client import GatewayClient, open_when_admitted
from agentflow.episode import Episode, EpisodeResult
from agentflow.flow import AgentFlow, play
from agentflow.seeds import derived_seed
from agentflow.settings import EvaluationPlan
from agentflow.version_evaluation import GREEDY
from schemas.http import Channel


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came of it; a failed episode counts as reward 0."""

    reward_mean: float
    episodes_failed: int
    policy_versions: tuple[str, ...]
    calls_replied: int
    episodes: tuple[EpisodeResult, ...]
    """In the order of the tasks, transcripts included."""


async def evaluate(flow: AgentFlow, client: GatewayClient, plan: EvaluationPlan) -> Evaluation:
    """Play all episodes. The client should carry the channel `val`. Raises GatewayUnavailable, RequestRefused."""
    slots = asyncio.Semaphore(plan.concurrency)

    async def one(index: int) -> EpisodeResult:
        async with slots:
            return await _play_greedily(flow, client, plan.run_id, derived_seed(Channel.VALIDATION, plan.seed, index))

    results = await asyncio.gather(*(one(index) for index in range(plan.episodes)))
    return _evaluation(results)


async def _play_greedily(flow: AgentFlow, client: GatewayClient, run_id: str | None, seed: int) -> EpisodeResult:
    spec = GroupSpec(size=1, channel=Channel.VALIDATION, run_id=run_id, task=flow.task(seed), admission=False)
    await open_when_admitted(client, spec, on_refusal=lambda _: None)
    episode = Episode(client, TrajectoryId.new(spec.group_id), task=spec.task or {}, seed=seed, sampling=GREEDY)
    return await play(flow, episode, client.settings)


def _evaluation(results: list[EpisodeResult]) -> Evaluation:
    versions = {version for result in results for version in result.policy_versions}
    return Evaluation(
        reward_mean=fmean(result.reward if result.status == "completed" else 0.0 for result in results),
        episodes_failed=sum(result.status == "failed" for result in results),
        policy_versions=tuple(sorted(versions)),
        calls_replied=sum(result.calls for result in results),
        episodes=tuple(results),
    )

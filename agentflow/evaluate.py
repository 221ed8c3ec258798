"""Evaluation on a channel that is never trained on: each task once at temperature 0, and for pass@k some
sampled episodes of it."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean
from typing import Any, TypeVar

from claw_r1.agentflow.bodies import GroupSpec, TrajectoryId
from claw_r1.agentflow.client import GatewayClient, open_when_admitted
from claw_r1.agentflow.episode import Episode, EpisodeResult
from claw_r1.agentflow.flow import AgentFlow, play
from claw_r1.agentflow.seeds import derived_seed
from claw_r1.agentflow.settings import EvaluationPlan
from claw_r1.agentflow.tasks import FlowTasks, Tasks
from claw_r1.agentflow.version_evaluation import GREEDY
from claw_r1.schemas.evaluation import reaches
from claw_r1.schemas.http import Channel

FLOW_TASKS = 64
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of an evaluation; an episode that failed counts as reward 0."""

    reward_mean: float | None
    """The mean reward of the greedy episodes; None: none of them was rewarded here."""
    episodes_failed: int
    policy_versions: tuple[str, ...]
    calls_replied: int
    calls_unanswered: int
    episodes: tuple[EpisodeResult, ...]
    """The greedy ones in the order of the tasks, transcripts included."""
    samples: int
    """Sampled episodes per task; 0: none."""
    pass_at: Mapping[str, float | None]
    """k -> the mean over tasks of pass@k among the sampled episodes; None: none of
    those that were completed was rewarded here."""
    sampled_mean: float | None
    """Mean reward of the sampled episodes; None as above, or where there is none."""

    @property
    def all_failed(self) -> bool:
        """No episode was completed."""
        return self.episodes_failed == len(self.episodes) * (1 + self.samples)


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
            who = TrajectoryId.new(spec.group_id)
            async with slots:
                episode = Episode(client, who, task=task, seed=derived_seed(seed, number), sampling=sampling)
                return await play(flow, episode, client.settings)

        return await _all([member(number) for number in range(size)])

    count = plan.episodes or order.count or FLOW_TASKS
    greedy = [group(index, 1, GREEDY) for index in range(count)]
    sampled = [group(index, plan.samples_each, None) for index in range(count if plan.samples_each else 0)]
    results = await _all([*greedy, *sampled])
    return _evaluation([episode for (episode,) in results[:count]], results[count:], plan)


async def _all(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order. An error or a cancellation of one ends all, and is raised when all have ended: episodes that are
    stopped say so to the gateway first."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    except Exception:
        for task in tasks:
            task.cancel()
        raise
    finally:
        await asyncio.gather(*tasks, return_exceptions=True)


def _evaluation(
    greedy: Sequence[EpisodeResult], sampled: Sequence[Sequence[EpisodeResult]], plan: EvaluationPlan
) -> Evaluation:
    samples = [episode for group in sampled for episode in group]
    everything = [*greedy, *samples]
    solutions = [sum(_solves(episode, plan.solved) for episode in group) for group in sampled]
    sampled_mean = _mean(samples)
    is_judged = sampled_mean is not None or all(episode.status == "failed" for episode in samples)
    return Evaluation(
        reward_mean=_mean(greedy),
        episodes_failed=sum(result.status == "failed" for result in everything),
        policy_versions=tuple(sorted({version for result in everything for version in result.policy_versions})),
        calls_replied=sum(result.calls for result in everything),
        calls_unanswered=sum(result.unanswered for result in everything),
        episodes=tuple(greedy),
        samples=plan.samples_each,
        pass_at={
            str(k): fmean(pass_at_k(plan.samples_each, solved, k) for solved in solutions) if is_judged else None
            for k in plan.pass_at_numbers
        },
        sampled_mean=sampled_mean,
    )


def _solves(result: EpisodeResult, solved: float) -> bool:
    return result.status == "completed" and result.reward is not None and reaches(result.reward, solved)


def _mean(results: Sequence[EpisodeResult]) -> float | None:
    """None where no episode was rewarded; else one without a reward, or that failed, is worth 0."""
    worth = [result.reward if result.status == "completed" else None for result in results]
    return None if all(reward is None for reward in worth) else fmean(reward or 0.0 for reward in worth)

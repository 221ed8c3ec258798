"""pass@k: the estimator, and what is played for it."""

import asyncio
from itertools import combinations

import pytest

from claw_r1.agentflow.client import GatewayClient
from claw_r1.agentflow.episode import Episode
from claw_r1.agentflow.errors import InvalidPlan
from claw_r1.agentflow.evaluate import evaluate, pass_at_k
from claw_r1.agentflow.flow import AgentFlow
from claw_r1.agentflow.settings import EvaluationPlan, RunPlan
from claw_r1.agentflow.version_evaluation import VersionEvaluation
from tests.agentflow.fake_gateway import FakeGateway
from tests.patience import until_async


@pytest.mark.parametrize("solutions", range(7))
@pytest.mark.parametrize("k", [1, 2, 5, 6])
def test_pass_at_k_is_the_share_of_draws_with_a_solution(solutions: int, k: int) -> None:
    """Of all subsets of k of 6 samples, those that hold one of the solutions."""
    draws = list(combinations([True] * solutions + [False] * (6 - solutions), k))
    assert pass_at_k(6, solutions, k) == pytest.approx(sum(map(any, draws)) / len(draws))


class Lucky(AgentFlow):
    """A greedy episode earns 0.25; of the sampled ones of a task, the first two solve it."""

    def __init__(self) -> None:
        self.samples: dict[int, int] = {}

    async def run(self, episode: Episode) -> None:
        reply = await episode.chat([{"role": "user", "content": "?"}], temperature=1.0)
        assert reply.call_id is not None
        if episode.sampling:
            episode.outcome = 0.25
            return
        number = self.samples[episode.task["seed"]] = self.samples.get(episode.task["seed"], 0) + 1
        episode.outcome = float(number <= 2)


async def test_samples_are_played_beside_the_greedy_episodes() -> None:
    """Each task has a greedy group of one and a group of n samples, on val; the greedy mean is of the greedy alone."""
    plan = EvaluationPlan(episodes=3, pass_at="1,4", samples=6)
    async with FakeGateway() as fake, GatewayClient(fake.url, channel="val") as client:
        result = await evaluate(Lucky(), client, plan)
    assert (
        sorted((body["channel"], body["size"]) for body in fake.bodies("groups")) == [("val", 1)] * 3 + [("val", 6)] * 3
    )
    assert (result.reward_mean, len(result.episodes), result.samples) == (0.25, 3, 6)
    assert result.pass_at == {"1": pytest.approx(2 / 6), "4": pytest.approx(1 - 1 / 15)}
    assert result.sampled_mean == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("pass_at", "samples", "says"),
    [("0", None, "from 1 on"), ("1,x", None, "from 1 on"), ("", None, "from 1 on"), ("1,8", 4, "pass@8 needs")],
)
def test_what_cannot_be_estimated_is_refused(pass_at: str, samples: int | None, says: str) -> None:
    """k below 1, no number, fewer samples than k."""
    with pytest.raises(InvalidPlan, match=says):
        EvaluationPlan(pass_at=pass_at, samples=samples)


async def test_a_failed_episode_solves_nothing() -> None:
    """Not even where a return of 0 is a solution; and its group has a deadline."""

    class Failing(AgentFlow):
        async def run(self, episode: Episode) -> None:
            raise ValueError("the author's mistake")

    async with FakeGateway() as fake, GatewayClient(fake.url, channel="val") as client:
        result = await evaluate(Failing(), client, EvaluationPlan(episodes=1, pass_at="1", solved=0.0))
        assert {body["deadline_s"] for body in fake.bodies("groups")} == {3600.0}
    assert result.pass_at == {"1": 0.0}
    assert (result.reward_mean, result.sampled_mean, result.all_failed) == (None, None, True)


async def test_what_is_judged_elsewhere_has_no_pass_at_k() -> None:
    """Scorers will say what the episodes earned: here that is unknown, and not 0."""

    class Silent(AgentFlow):
        async def run(self, episode: Episode) -> None:
            await episode.chat([{"role": "user", "content": "?"}])

    async with FakeGateway() as fake, GatewayClient(fake.url, channel="val") as client:
        result = await evaluate(Silent(), client, EvaluationPlan(episodes=2, pass_at="1,2"))
    assert (result.pass_at, result.sampled_mean) == ({"1": None, "2": None}, None)


async def test_an_episode_without_a_reward_counts_as_0_among_others() -> None:
    """The mean of none is null, and not the mean of what was rewarded alone."""

    class Half(AgentFlow):
        def task(self, seed: int) -> dict[str, object]:
            return {"word": next(words)}

        async def run(self, episode: Episode) -> None:
            if episode.task["word"] == "a":
                episode.outcome = 1.0

    words = iter("abab")
    async with FakeGateway() as fake, GatewayClient(fake.url, channel="val") as client:
        result = await evaluate(Half(), client, EvaluationPlan(episodes=4))
    assert (result.reward_mean, result.all_failed) == (0.5, False)


async def test_episodes_have_the_seeds_of_an_evaluation_beside_a_run() -> None:
    """Greedy ones, too: a flow that draws by its seed plays the same in both."""

    class Noting(AgentFlow):
        def __init__(self) -> None:
            self.seeds: set[tuple[bool, int]] = set()

        async def run(self, episode: Episode) -> None:
            self.seeds.add((bool(episode.sampling), episode.seed))
            await episode.chat([{"role": "user", "content": "?"}])

    alone, beside = Noting(), Noting()
    async with FakeGateway() as fake, GatewayClient(fake.url, channel="val") as client:
        await evaluate(alone, client, EvaluationPlan(episodes=2, pass_at="1", samples=2, seed=3))
        evaluation = VersionEvaluation(
            beside, client, RunPlan(run_id="run", eval_every=2, eval_count=2, eval_samples=2, seed=3)
        )
        evaluation.saw("run/0")
        playing = asyncio.create_task(evaluation.run())
        await until_async(lambda: len(fake.bodies("complete_trajectory")) == 12)
        playing.cancel()
    assert len(alone.seeds) == 6
    assert alone.seeds == beside.seeds

"""The metrics of the episodes of a batch, against numbers of their own."""

from collections.abc import Mapping

import numpy as np
import pytest

from claw_r1.schemas.events import BatchAssembled, EpisodeFigures, PlannedTrajectory
from claw_r1.trainer.plan.episode_metrics import (
    ENVIRONMENTS_MAX,
    SLOTS_MAX,
    environment_index,
    environments_of,
    episode_metrics,
)
from tests import facts


def trajectory(
    reward: float,
    lengths: tuple[int, ...] = (4,),
    *,
    environment: str = "",
    rewards: Mapping[str, float] | None = None,
    **figures: object,
) -> PlannedTrajectory:
    own = {"status": "completed", "rewards": rewards or {}, **figures}
    return PlannedTrajectory(
        group_id="g",
        trajectory_id="t",
        reward=reward,
        advantage=0.0,
        steps=(),
        figures=EpisodeFigures(environment=environment, response_lengths=lengths, **own),
    )


def plan(*trajectories: PlannedTrajectory) -> BatchAssembled:
    return BatchAssembled(
        envelope=facts.envelope(),
        run_id="run",
        sequence=0,
        version=0,
        spec="{}",
        trajectories=trajectories,
        seed=0,
    )


def test_replies_turns_failures_and_times() -> None:
    """Over replies the lengths and what was cut off, over episodes the rest; an episode without a call counts as one."""
    metrics = episode_metrics(
        plan(
            trajectory(1.0, (10, 20, 30), truncated=1, seconds=4.0),
            trajectory(0.0, (40,), truncated=1, seconds=2.0, status="failed"),
            trajectory(0.0, (), status="abandoned"),
            trajectory(0.5, (100,)),
        )
    )
    lengths = [10, 20, 30, 40, 100]
    assert metrics["response_tokens_mean"] == 40
    assert metrics["response_tokens_p50"] == pytest.approx(np.quantile(lengths, 0.5))
    assert metrics["response_tokens_p95"] == pytest.approx(np.quantile(lengths, 0.95))
    assert metrics["truncated_share"] == pytest.approx(2 / 5)
    assert (metrics["turns_mean"], metrics["turns_max"]) == (5 / 4, 3)
    assert metrics["failed_share"] == 0.5
    assert metrics["episode_tokens_mean"] == 50
    assert metrics["episode_s_mean"] == 3
    assert not [name for name in metrics if name.startswith(("env.", "slot."))]


def test_the_distribution_of_returns_adds_up() -> None:
    """Ten bins between the least and the most, numpy's; equal returns are in the first one."""
    dice = np.random.default_rng(3)
    returns = [*dice.normal(size=61).tolist(), 5.0, -5.0]
    metrics = episode_metrics(plan(*map(trajectory, returns)))
    counts = [metrics[f"return_bin_{n}"] for n in range(10)]
    assert counts == np.histogram(returns, bins=10)[0].tolist()
    assert metrics["reward_p50"] == pytest.approx(np.median(returns))
    assert metrics["reward_p10"] < metrics["reward_p50"] < metrics["reward_p90"]
    equal = episode_metrics(plan(trajectory(0.3), trajectory(0.3)))
    assert [equal[f"return_bin_{n}"] for n in range(10)] == [2] + [0] * 9


@pytest.mark.parametrize("low", [0, 1, -5])
def test_a_return_on_the_boundary_of_two_bins_is_in_the_upper_one(low: int) -> None:
    """No tenth is rounded into the bin below it (0.3 / 0.1 is 2.9999…), nor is a bin empty beside one with two."""
    metrics = episode_metrics(plan(*(trajectory((10 * low + n) / 10) for n in range(11))))
    assert [metrics[f"return_bin_{n}"] for n in range(10)] == [1] * 9 + [2]


def test_rewards_by_slot_are_means_over_those_that_have_one() -> None:
    """A slot that one of two episodes has is not halved; the number of slots is bounded, the most frequent stay."""
    metrics = episode_metrics(
        plan(
            trajectory(0.0, rewards={"rules/exact": 1.0, "judge/style": 0.5}),
            trajectory(0.0, rewards={"rules/exact": 0.0}),
        )
    )
    assert (metrics["slot.rules/exact"], metrics["slot.judge/style"]) == (0.5, 0.5)
    many = [trajectory(0.0, rewards={f"s/{n:03}": 1.0}) for n in range(90)]
    metrics = episode_metrics(plan(*many, trajectory(0.0, rewards={"s/089": 3.0})))
    slots = [name for name in metrics if name.startswith("slot.")]
    assert len(slots) == SLOTS_MAX
    assert metrics["slot.s/089"] == 2.0


def test_every_metric_is_there_by_environment() -> None:
    """What all episodes have, each environment has; those that name none are `other`, and shares add up."""
    episodes = [
        trajectory(1.0, (10,), environment="math", seconds=1.0),
        trajectory(0.0, (30,), environment="math", truncated=1, seconds=3.0),
        trajectory(0.5, (7, 9), environment="code", seconds=2.0, status="failed"),
        trajectory(0.2, (50,), seconds=2.0),
    ]
    metrics = episode_metrics(plan(*episodes))
    assert metrics["env.math.reward"] == 0.5
    assert metrics["env.math.response_tokens_mean"] == 20
    assert metrics["env.math.truncated_share"] == 0.5
    assert metrics["env.code.failed_share"] == 1.0
    assert metrics["env.code.turns_mean"] == 2
    assert metrics["env.other.reward"] == 0.2
    assert sum(metrics[f"env.{name}.share"] for name in ("math", "code", "other")) == 1
    of_all = {name for name in episode_metrics(plan(episodes[3])) if not name.startswith(("reward_p", "return_bin"))}
    for name in ("math", "code", "other"):
        assert {each for each in of_all if f"env.{name}.{each}" in metrics} == of_all


def test_a_thousand_environments_make_few_metrics() -> None:
    """Tags come from clients: the most frequent environments stay, the others are one, and long names are cut."""
    episodes = [trajectory(1.0, environment=f"e{n}") for n in range(1000)]
    episodes += [trajectory(0.0, environment="big" * 100) for _ in range(5)]
    metrics = episode_metrics(plan(*episodes))
    shares = [name for name in metrics if name.endswith(".share")]
    assert len(shares) == ENVIRONMENTS_MAX + 1
    assert metrics["env." + ("big" * 100)[:64] + ".share"] == pytest.approx(5 / 1005)
    assert metrics["env.other.share"] == pytest.approx((1000 - ENVIRONMENTS_MAX + 1) / 1005)
    assert len(metrics) < 150


def test_an_episode_stands_where_its_environment_is_named() -> None:
    """The index is that of the name; episodes of the others share the last one, and without names all have the first."""
    mixed = plan(*(trajectory(1.0, environment=name) for name in ("math", "math", "code", "")))
    names = environments_of(mixed)
    assert names == ("math", "code", "other")
    assert [environment_index(each.figures, names) for each in mixed.trajectories] == [0, 0, 1, 2]
    unnamed = plan(trajectory(1.0), trajectory(0.0))
    assert environments_of(unnamed) == ()
    assert [environment_index(each.figures, ()) for each in unnamed.trajectories] == [0, 0]
    many = plan(*(trajectory(1.0, environment=f"e{n:03}") for n in range(50)))
    indexes = {environment_index(each.figures, environments_of(many)) for each in many.trajectories}
    assert indexes == set(range(ENVIRONMENTS_MAX + 1))


def test_an_older_plan_has_returns_alone() -> None:
    """Plans of before say nothing of how episodes went."""
    old = PlannedTrajectory(group_id="g", trajectory_id="t", reward=1.0, advantage=0.0, steps=())
    metrics = episode_metrics(plan(old))
    assert metrics["reward_p50"] == 1.0
    assert "turns_mean" not in metrics

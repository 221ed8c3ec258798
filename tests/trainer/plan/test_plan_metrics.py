"""The metrics of a plan, before anything is computed."""

from msgspec.structs import replace

from claw_r1.trainer.plan.plan_metrics import plan_metrics
from tests.trainer.plan.test_episode_metrics import plan, trajectory


def test_a_group_of_one_has_a_variance_that_nobody_knows() -> None:
    """It counts as no group of equal returns, as in the pool: with a critic, or imitated, it teaches all the same."""
    trajectories = [
        replace(trajectory(reward), group_id=group)
        for group, reward in (("alone", 1.0), ("equal", 1.0), ("equal", 1.0), ("unequal", 0.0), ("unequal", 1.0))
    ]
    alone, equal, unequal = trajectories[:1], trajectories[1:3], trajectories[3:]
    shares = [
        plan_metrics(replace(plan(*each), spec='{"algorithm": "gae"}'))["zero_variance_share"]
        for each in (alone, equal, unequal, [*alone, *equal])
    ]
    assert shares == [0.0, 1.0, 0.0, 0.5]

"""The tiles of a batch, by its plan alone."""

import pytest
from msgspec.structs import replace

from claw_r1.consumers.dashboard.batch.anatomy import tiles
from claw_r1.trainer.plan.plan_metrics import plan_metrics
from tests.consumers.dashboard.overview_scene import plan


@pytest.mark.parametrize(("sizes", "equal"), [([1, 1, 1], 0), ([2, 1], 1), ([3], 1)])
def test_a_group_of_one_is_none_of_equal_returns(sizes: list[int], equal: int) -> None:
    """Nobody could differ: its baseline is not its group's."""
    batch = plan(0, "g", [True])
    (member,) = batch.trajectories
    names = [f"g{number}" for number, size in enumerate(sizes) for _ in range(size)]
    figures = tiles(replace(batch, trajectories=tuple(replace(member, group_id=name) for name in names)))
    assert (figures["equal_groups"], figures["groups"]) == (equal, len(sizes))


def test_returns_deviate_as_much_as_the_trainer_says() -> None:
    """The page and the run's metrics have one number for one batch."""
    batch = replace(plan(0, "g", [True, True]), spec='{"algorithm": "grpo"}')
    assert tiles(batch)["return_deviation"] == plan_metrics(batch)["reward_std"] == 0.5

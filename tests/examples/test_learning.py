"""What learning starts from, and with which settings: cheap checks of what `bench.environments` and docs/environments.md say."""

import random
import re
from pathlib import Path
from statistics import fmean

import pytest

from bench.environments.courses import COURSES, MEMBERS
from claw_r1.agentflow.flow import load_flow
from claw_r1.trainer.settings import load
from examples.calculator import demonstrations as of_problems
from examples.calculator import rules as calculator
from examples.castle import demonstrations as of_castles
from examples.castle import rules as castle

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "environments.md").read_text()


def test_demonstrations_of_problems_mostly_err() -> None:
    """Imitated perfectly they earn a third, and the operation that they show most often is always a wrong one."""
    dice = random.Random(0)
    signs = [[call[-2] for call in calculator.Problem.from_seed(seed).solution] for seed in range(2000)]
    earned = [all(of_problems.demonstrated_sign(right, dice) == right for right in steps) for steps in signs]
    assert 0.2 < fmean(earned) < 0.4
    for right, favourite in of_problems.FAVOURITE.items():
        drawn = [of_problems.demonstrated_sign(right, dice) for _ in range(500)]
        assert max(set(drawn), key=drawn.count) == favourite != right


def test_demonstrations_of_castles_rarely_win() -> None:
    """Played by the shares of the demonstrations, a game in twenty is won, and there is something to compare within a group."""
    dice, returns = random.Random(0), []
    for seed in range(500):
        place = castle.Castle.from_seed(seed)
        play, turn = castle.attempt(place), castle.judge(place, castle.Visit())
        while turn.observation is not None:
            turn = play(of_castles.demonstrated_action(turn.observation, dice))
        returns.append(turn.reward)
    assert fmean(reward == 1.0 for reward in returns) < 0.1
    assert 0.2 < fmean(returns) < 0.4
    assert len(set(returns)) > 5


@pytest.mark.parametrize("environment", COURSES)
def test_the_stack_trains_with_the_settings_that_were_measured(environment: str) -> None:
    """`trainer.yaml` and the bench agree on groups, members, learning rate and goal; the page names a flow that loads."""
    folder = ROOT / ("claw/demo" if environment == "verbs" else "examples") / environment
    trainer, course = load(["--config", str(folder / "trainer.yaml")]), COURSES[environment]
    assert (trainer.spec.groups_per_batch, trainer.spec.group_size) == (course.groups, MEMBERS)
    assert (trainer.learning_rate, trainer.stop_reward) == (course.learning_rate, course.goal)
    assert trainer.run_id == environment == trainer.model_dir.name
    flow = re.search(rf"[\w.]+\.{environment}\.flow:\w+Flow", PAGE)
    assert flow is not None
    assert load_flow(flow[0]).task(1) == load_flow(flow[0]).task(1)

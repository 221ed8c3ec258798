"""Learning rates by the number of the step."""

import pytest

from claw_r1.trainer.algorithms.schedules import factor


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("constant", [0.5, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 1, 0.775, 0.55, 0.325, 0.1, 0.1]),
        ("cosine", [0.5, 1, 1, 0.1 + 0.9 * 0.8535534, 0.55, 0.1 + 0.9 * 0.1464466, 0.1, 0.1]),
    ],
)
def test_warm_up_then_decay_then_the_floor(name, expected):
    """Two steps up, five down to a tenth, and there it stays."""
    factors = [factor(name, step, warmup_steps=2, steps_max=7, floor=0.1) for step in range(8)]
    assert factors == pytest.approx(expected, abs=1e-6)


def test_without_warm_up_the_first_step_is_full():
    """A schedule of one step is no division by zero."""
    assert [factor("linear", step, warmup_steps=0, steps_max=1, floor=0.0) for step in range(2)] == [1, 0]

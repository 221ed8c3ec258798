"""Advantages against reference values that were computed with the formulas of their papers and of verl."""

import pytest

from trainer.advantages import ADVANTAGES, dr_grpo, grpo, rloo


@pytest.mark.parametrize(
    ("function", "returns", "expected"),
    [
        (grpo, [1, 0, 0, 1], [0.865875, -0.865875, -0.865875, 0.865875]),
        (grpo, [0.2, 0.5, 1, 0], [-0.517202, 0.172401, 1.321739, -0.976938]),
        (grpo, [1, 1, 1, 1], [0, 0, 0, 0]),
        (grpo, [0.1, 0.1, 0.1], [0, 0, 0]),
        (dr_grpo, [1, 0, 0, 1], [0.5, -0.5, -0.5, 0.5]),
        (dr_grpo, [0.2, 0.5, 1, 0], [-0.225, 0.075, 0.575, -0.425]),
        (rloo, [1, 0, 0, 1], [0.666667, -0.666667, -0.666667, 0.666667]),
        (rloo, [0.2, 0.5, 1, 0], [-0.3, 0.1, 0.766667, -0.566667]),
    ],
)
def test_reference_values(function, returns, expected):
    """Sample deviation (ddof 1) and epsilon 1e-4: the population deviation would give +-0.9998 in the first case."""
    assert function(returns) == pytest.approx(expected, abs=1e-6)


def test_every_algorithm_of_the_spec_has_a_function():
    """What a batch spec may ask for is in the table."""
    from typing import get_args

    from datapool.batch_spec import BatchSpec

    assert set(get_args(BatchSpec.model_fields["algorithm"].annotation)) == set(ADVANTAGES)

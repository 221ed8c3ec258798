"""What a generation says of how it was sampled."""

import json
from types import SimpleNamespace

import pytest

from claw_r1.rollout.plugin.generation import Generation
from tests.rollout.plugin.sampling_params import params


@pytest.mark.parametrize(
    ("field", "value", "constrained"),
    [
        ("logit_bias", {1: 1.0}, True),
        ("min_tokens", 0, False),
        ("min_tokens", 3, True),
        ("structured_outputs", SimpleNamespace(all_constraints_none=lambda: True), False),
        ("structured_outputs", SimpleNamespace(all_constraints_none=lambda: False), True),
        ("extra_args", {"x": 1}, True),
    ],
)
def test_what_shapes_the_distribution_is_said(field: str, value: object, constrained: bool) -> None:
    """Of the engine's own parameters, whatever route they came by."""
    generation = Generation(params(**{field: value}, stop="end", top_k=-1))
    sampling = json.loads(generation.dump())["sampling"]
    assert (sampling["constrained"], sampling["stop"], sampling["top_k"]) == (constrained, ["end"], 0)

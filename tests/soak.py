"""What `make soak N=50` alone runs: the rest of what a law holds for, once it is shown for the cases that differ most."""

import os
from collections.abc import Callable
from typing import Any

import pytest

SOAK = int(os.environ.get("CLAW_SOAK", "0"))
"""How often the soak repeats what `make test` does once or twice; 0: no soak."""
ONLY_IN_SOAK = (pytest.mark.soak, pytest.mark.skipif(not SOAK, reason="only in make soak"))


def in_soak(*values: Any, **names: Any) -> Any:  # whatever a test is parametrised by; as `pytest.param`
    """A case of a parametrised test that `make test` leaves out."""
    return pytest.param(*values, marks=ONLY_IN_SOAK, **names)


def only_in_soak(test: Callable[..., Any]) -> Callable[..., Any]:
    """A whole test that `make test` leaves out."""
    for mark in ONLY_IN_SOAK:
        test = mark(test)
    return test


ZERO_STAGES = (0, in_soak(1), in_soak(2), 3)
"""Of ZeRO: nothing is partitioned, and everything is; between them lie the optimizer's state and the gradients."""
EVERY_ZERO_STAGE = pytest.mark.parametrize("stage", ZERO_STAGES)

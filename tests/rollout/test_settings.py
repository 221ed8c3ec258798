"""Settings of a worker that contradict each other."""

import pytest
from pydantic import ValidationError

from tests.rollout.scripted import settings


def test_contradicting_deadlines_are_refused() -> None:
    """A health deadline shorter than the interval is an error at load, not a restart loop."""
    with pytest.raises(ValidationError, match="health_timeout_s"):
        settings(health_interval_s=5, health_timeout_s=1)

"""`make bench-agents` at a small size: it measures with the gateway, the runner and the SDK of today."""

from pathlib import Path

import pytest

from bench.agents import runner_cpu


@pytest.mark.kafka
@pytest.mark.process
@pytest.mark.slow
def test_the_runner_is_measured_beside_the_sdk(broker: str, tmp_path: Path) -> None:
    """Both sides play their calls through one gateway to a scripted engine, and cost something."""
    figures = runner_cpu(broker, tmp_path, repeats=1, episodes=8)
    assert min(figures["runner_cpu_ms"], figures["sdk_cpu_ms"], figures["runner_cpu_ratio"]) > 0

"""`make bench-agents` at a small size: it measures with the gateway, the runner and the SDK of today."""

import pytest

from bench.agents.load import runner


@pytest.mark.kafka
@pytest.mark.process
@pytest.mark.slow
def test_the_runner_is_measured_beside_the_sdk(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides play their calls through one gateway to a scripted engine, and cost something."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker)
    figures = runner(repeats=1, episodes=8)
    assert min(figures["runner_cpu_ms"], figures["sdk_cpu_ms"], figures["runner_cpu_ratio"]) > 0

"""The counters of every process that writes logs, for Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from claw_r1.runtime.logs import dropped_lines


class LogCollector(Collector):
    """Log lines that were dropped because this process's stderr did not take them."""

    def collect(self) -> Iterator[Metric]:
        """One counter."""
        yield CounterMetricFamily(
            "claw_log_lines_dropped", "Lines of this process that its stderr did not take.", dropped_lines()
        )

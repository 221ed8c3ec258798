"""The registry of a process, with what every process tells of itself."""

import importlib.metadata
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from claw_r1.runtime.logs import dropped_lines


class ProgramCollector(Collector):
    """The version of the program, and log lines that its stderr did not take."""

    def __init__(self) -> None:
        self._version = importlib.metadata.version("claw-r1")

    def collect(self) -> Iterator[Metric]:
        """One counter, one constant."""
        yield CounterMetricFamily(
            "claw_log_lines_dropped", "Lines of this process that its stderr did not take.", dropped_lines()
        )
        yield InfoMetricFamily("claw", "The version of the program.", value={"version": self._version})


def process_registry() -> CollectorRegistry:
    """A registry that tells of the program, its logs, its memory, its processor time and its open files."""
    registry = CollectorRegistry()
    registry.register(ProgramCollector())
    ProcessCollector(registry=registry)
    return registry

"""The registry of a process, with what every process tells of itself."""

import importlib.metadata
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
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


def watch_disk(registry: CollectorRegistry, **directories: Path) -> None:
    """Adds the room on the disks of these directories, by name."""
    free = Gauge("claw_disk_free_bytes", "Room on the disk of a directory of ours.", ["directory"], registry=registry)
    size = Gauge("claw_disk_size_bytes", "Size of that disk; 0: not known.", ["directory"], registry=registry)
    for name, path in directories.items():
        free.labels(name).set_function(partial(disk_bytes, path, "free"))
        size.labels(name).set_function(partial(disk_bytes, path, "total"))


def disk_bytes(path: Path, of: Literal["free", "total"]) -> int:
    """Asks the disk of a directory, or of the next one above that there is."""
    for place in (path, *path.absolute().parents):
        with suppress(OSError):
            usage = shutil.disk_usage(place)
            return usage.free if of == "free" else usage.total
    return 0

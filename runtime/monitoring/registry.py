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
from claw_r1.runtime.monitoring.tracing import spans

NOT_TRACED = {"exported": 0, "refused": 0, "dropped": 0}


class ProgramCollector(Collector):
    """The version of the program, log lines that its stderr did not
    take, and spans by what became of them."""

    def __init__(self) -> None:
        self._version = importlib.metadata.version("claw-r1")

    def collect(self) -> Iterator[Metric]:
        """Two counters, one constant."""
        yield CounterMetricFamily(
            "claw_log_lines_dropped", "Lines of this process that its stderr did not take.", dropped_lines()
        )
        traces = CounterMetricFamily(
            "claw_spans", "Spans of this process, by what became of them; 0 without a receiver.", labels=["outcome"]
        )
        own = spans()
        for outcome, count in (own.counts if own is not None else NOT_TRACED).items():
            traces.add_metric([outcome], count)
        yield traces
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


def watch_certificate(registry: CollectorRegistry, path: Path | None) -> None:
    """Adds the end of the certificate in a PEM file, as the file is when somebody asks. path: None: the door has none."""
    if path is not None:
        end = Gauge(
            "claw_certificate_end_timestamp_seconds",
            "End of the certificate of this process's door, as its file is now; 0: it cannot be read.",
            registry=registry,
        )
        end.set_function(partial(certificate_end_s, path))


def certificate_end_s(path: Path) -> float:
    """The end of the first certificate in a PEM file, in seconds since 1970; 0 where there is none."""
    from cryptography.x509 import load_pem_x509_certificate

    with suppress(OSError, ValueError):
        return load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()
    return 0.0


def disk_bytes(path: Path, of: Literal["free", "total"]) -> int:
    """Asks the disk of a directory, or of the next one above that there is."""
    for place in (path, *path.absolute().parents):
        with suppress(OSError):
            usage = shutil.disk_usage(place)
            return usage.free if of == "free" else usage.total
    return 0

"""`python -m tests.docs.metrics_page`: writes the tables of docs/metrics.md from the code, one per room.

They stand between `<!-- metrics -->` and `<!-- /metrics -->`. It is no program of the product: nobody there may import all rooms.
"""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from claw_r1.claw.home import PROJECT
from claw_r1.claw.show.tables import with_table
from claw_r1.consumers.dashboard.metrics import registry_of
from claw_r1.consumers.rewards.metrics import RewardsMetrics
from claw_r1.eventlog.spool.spool import SpoolStats
from claw_r1.gateway.metrics import Metrics
from claw_r1.rollout.metrics import RolloutMetrics
from claw_r1.rollout.reporter import Status
from claw_r1.runtime.monitoring.registry import process_registry, watch_certificate, watch_disk
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.trainer.metrics import TrainerMetrics

PAGE = PROJECT / "docs" / "metrics.md"
UNITS = {"seconds": "seconds", "bytes": "bytes"}


class Described(NamedTuple):
    """One row of a table."""

    name: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    meaning: str


def gateway() -> CollectorRegistry:
    metrics = Metrics()
    stats = SpoolStats(**dict.fromkeys(SpoolStats.__annotations__, 0))
    metrics.observe_spool(lambda: stats, lambda: False)
    watch_disk(metrics.registry, spool=PROJECT)
    watch_certificate(metrics.registry, PROJECT)
    metrics.observe_engines(lambda: {"idle": 0.0})
    return metrics.registry


def trainer() -> CollectorRegistry:
    registry = TrainerMetrics().registry
    watch_disk(registry, out_dir=PROJECT)
    return registry


def rollout() -> CollectorRegistry:
    status = Status(sync_ms={"load": 1.0}, seconds={"idle": 1.0})
    registry = RolloutMetrics(lambda: status, lambda: None).registry
    watch_disk(registry, copies=PROJECT)
    return registry


def dashboard() -> CollectorRegistry:
    source: Any = SimpleNamespace(
        live=SimpleNamespace(readers=0), watch=SimpleNamespace(away_since_us=None), runs_caught_up=True
    )
    registry = registry_of(source)
    watch_certificate(registry, PROJECT)
    return registry


ROOMS: dict[str, Callable[[], CollectorRegistry]] = {
    "every process": process_registry,
    "gateway": gateway,
    "streams": lambda: StreamsMetrics().registry,
    "trainer": trainer,
    "rollout": rollout,
    "rewards": lambda: RewardsMetrics().registry,
    "dashboard": dashboard,
}


def described(registry: CollectorRegistry) -> Iterator[Described]:
    """Every metric of a registry under the name by which a rule asks for it."""
    for collector in list(registry._collector_to_names):  # the library has no other list of what a registry holds
        labels = tuple(getattr(collector, "_labelnames", ()))
        for metric in cast("Any", collector).collect():
            yield _row(metric, labels)


def _row(metric: Metric, labels: tuple[str, ...]) -> Described:
    suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
    unit = next((unit for end, unit in UNITS.items() if metric.name.endswith(f"_{end}")), "")
    names = labels or tuple(sorted({name for sample in metric.samples for name in sample.labels} - {"le"}))
    return Described(metric.name + suffix, metric.type, unit, names, metric.documentation)


def tables() -> str:
    """A heading and a table per room; what every process has stands in the first alone."""
    common = {row.name for row in described(process_registry())}
    parts = []
    for room, registry in ROOMS.items():
        rows = [row for row in described(registry()) if room == "every process" or row.name not in common]
        lines = [
            f"| `{row.name}` | {row.kind} | {row.unit} | {', '.join(f'`{label}`' for label in row.labels)} | {row.meaning.rstrip('.')} |"
            for row in rows
        ]
        parts.append(
            "\n".join([f"### {room}", "", "| name | kind | unit | labels | meaning |", "|---|---|---|---|---|", *lines])
        )
    return "\n\n".join(parts)


def with_tables(text: str) -> str:
    """The page with the tables that the code has now. Raises ValueError when a marker is missing."""
    return with_table(text, "metrics", f"\n{tables()}\n")


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))

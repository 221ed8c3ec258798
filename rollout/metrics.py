"""The counters of a worker's supervisor, for Prometheus: read from its status when somebody
asks. vLLM has its own."""

from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from prometheus_client import Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from claw_r1.rollout.reporter import Status
from claw_r1.runtime.monitoring.registry import process_registry
from claw_r1.schemas.events import WeightsPublished, WorkerState
from claw_r1.schemas.topics import TAKES_TRAFFIC


class RolloutMetrics:
    """One registry per supervisor: two in one process do not collide."""

    def __init__(self, status: Callable[[], Status], latest: Callable[[], WeightsPublished | None]) -> None:
        self.registry = registry = process_registry()
        self._status = status
        self._loads = Counter(
            "claw_rollout_loads", "Versions that the engine loaded, by where from.", ["source"], registry=registry
        )
        self.not_had = Counter(
            "claw_rollout_fetch_failures", "Attempts to get a version that every source failed.", registry=registry
        )
        self._ways_failed = Counter(
            "claw_rollout_source_failures",
            "Sources that did not serve, before another one did.",
            ["source"],
            registry=registry,
        )
        self.engine_losses = Counter(
            "claw_rollout_engine_losses", "Engines that died, hung or served something else.", registry=registry
        )
        registry.register(StatusCollector(status, latest))

    def loaded(self, source: str, failed: Iterable[str]) -> None:
        """The engine has a version. failed: why other sources did not serve, each behind its name."""
        self._loads.labels(source).inc()
        for reason in failed:
            self._ways_failed.labels(reason.partition(":")[0]).inc()

    def not_ready(self) -> str | None:
        """Returns why this worker takes no calls, or None."""
        status = self._status()
        if status.state in TAKES_TRAFFIC:
            return None
        return f"{status.state}: {status.detail}" if status.detail else status.state


class StatusCollector(Collector):
    """A worker as it reports itself."""

    def __init__(self, status: Callable[[], Status], latest: Callable[[], WeightsPublished | None]) -> None:
        self._now, self._latest = status, latest

    def collect(self) -> Iterator[Metric]:
        """Without a version that it loaded, or that was published, its number is -1."""
        now, latest, name = self._now(), self._latest(), "claw_rollout_"
        state = GaugeMetricFamily(name + "state", "1 for the state that it reports.", labels=["state"])
        for one in get_args(WorkerState):
            state.add_metric([one], float(one == now.state))
        yield state
        loaded = -1 if now.loaded is None else now.loaded.version
        published = -1 if latest is None else latest.version
        yield GaugeMetricFamily(name + "version", "The version that it serves; -1: its base.", loaded)
        yield GaugeMetricFamily(name + "published_version", "The newest version that it may follow.", published)
        yield GaugeMetricFamily(name + "in_flight", "Replies under way.", now.in_flight)
        yield GaugeMetricFamily(name + "kv_usage", "Share of the KV cache in use, 0 to 1.", now.kv_usage or 0.0)
        sync = GaugeMetricFamily(name + "sync_seconds", "Time of the last load, by phase.", labels=["phase"])
        for phase, milliseconds in sorted(now.sync_ms.items()):
            if phase != "probe_gap":
                sync.add_metric([phase], milliseconds / 1000)
        yield sync
        gap = GaugeMetricFamily(
            name + "probe_gap", "Largest difference of a log-probability of the last probe; none: no probe."
        )
        if "probe_gap" in now.sync_ms:
            gap.add_metric([], now.sync_ms["probe_gap"])
        yield gap
        did = CounterMetricFamily(name + "engine_seconds", "Time of the engine, by what it did.", labels=["did"])
        for activity, seconds in sorted(now.seconds.items()):
            did.add_metric([activity], seconds)
        yield did

"""Prometheus metrics of one gateway, in a registry of its own. No label holds an id or a header of a client."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from claw_r1.eventlog.spool.spool import SpoolStats
from claw_r1.runtime.monitoring.registry import process_registry

NAMESPACE = "claw_gateway"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
ACK_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Histogram(Collector):
    """Observations by bucket. One thread observes, so no lock is held: the library's own
    costs ten times as much."""

    def __init__(self, name: str, documentation: str, bounds: Sequence[float], *, registry: CollectorRegistry) -> None:
        self._name, self._documentation, self._bounds = f"{NAMESPACE}_{name}", documentation, tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[Metric]:
        """The histogram as Prometheus wants it: counts up to each bound."""
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=self._sum)


class Metrics:
    """The counters of the gateway. Attributes are named like the metrics, without `claw_gateway_`."""

    def __init__(self) -> None:
        self.registry = process_registry()
        self._request = cache(lambda route, status: self.requests.labels(route, str(status)))
        self._captured = cache(lambda lane: self.captured.labels(lane))
        self._declare_counters(partial(Counter, namespace=NAMESPACE, registry=self.registry))
        self._declare_histograms(partial(Histogram, registry=self.registry))
        self._declare_gauges(partial(Gauge, namespace=NAMESPACE, registry=self.registry))

    def _declare_counters(self, counter: Callable[..., Counter]) -> None:
        self.requests = counter("requests", "Requests by route and status.", ["route", "status"])
        self.streams = counter("streams", "Streamed calls, by how they ended.", ["end"])
        self.captured = counter("captured", "Events of captured calls, by lane.", ["lane"])
        self.incomplete = counter(
            "incomplete", "Captured calls that cannot be trained, by what is missing.", ["missing"]
        )
        self.failed = counter("failed", "Calls without tokens, by reason.", ["reason"])
        self.unacknowledged = counter("unacknowledged", "Replies kept back: no acknowledgement.")
        self.replayed = counter("replayed", "Retries answered with the captured reply.")
        self.upstream_retries = counter("upstream_retries", "Failed tries at an engine, by reason.", ["reason"])
        self.admission = counter("admission", "Groups asked for, by decision.", ["decision"])
        self.crowding = counter("crowding", "Undeclared groups near their limit, and members refused.", ["said"])
        self.capture_lost = counter(
            "capture_lost",
            "Replies that a client saw and the log did not take; 0 unless capture_on_failure is availability.",
            namespace="claw",
        )

    def _declare_histograms(self, histogram: Callable[..., Histogram]) -> None:
        self.request_seconds = histogram("request_seconds", "Model calls, from headers to last byte.", SECONDS)
        self.overhead_seconds = histogram("overhead_seconds", "Model calls, time outside the engine.", ACK_SECONDS)
        self.first_token_seconds = histogram("first_token_seconds", "Streams, from headers to first token.", SECONDS)
        self.capture_ack_seconds = histogram("capture_ack_seconds", "Publish to acknowledgement.", ACK_SECONDS)

    def _declare_gauges(self, gauge: Callable[..., Gauge]) -> None:
        self.loop_lag_seconds = gauge("event_loop_lag_seconds", "Longest delay of the event loop in the last 10 s.")
        self._in_flight = gauge("in_flight", "Model calls under way.")
        self._held = gauge("held_bytes", "Requests under way, and replies of model calls.")
        self._workers = gauge("workers", "Servers that can take a call.")

    def request(self, route: str, status: int) -> None:
        self._request(route, status).inc()

    def capture(self, lane: str) -> None:
        self._captured(lane).inc()

    def observe(self, in_flight: Callable[[], float], workers: Callable[[], float], held: Callable[[], float]) -> None:
        """Sets the sources of the gauges."""
        self._in_flight.set_function(in_flight)
        self._workers.set_function(workers)
        self._held.set_function(held)

    def observe_spool(self, stats: Callable[[], SpoolStats], log_away: Callable[[], bool]) -> None:
        """Sets the sources of the spool's metrics."""
        self.registry.register(SpoolCollector(stats, log_away))

    def observe_engines(self, seconds: Callable[[], Mapping[str, float]]) -> None:
        """Sets the source of the engines' time, by activity."""
        self.registry.register(EngineCollector(seconds))

    def exposition(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)


class EngineCollector(Collector):
    """A collector of the engines' time by activity: whose share of `idle` is high waits for agents, or for the trainer
    behind them."""

    def __init__(self, seconds: Callable[[], Mapping[str, float]]) -> None:
        self._seconds = seconds

    def collect(self) -> Iterator[Metric]:
        help_ = "Seconds of all engines, by what they did: serving, idle, paused."
        family = CounterMetricFamily(f"{NAMESPACE}_engine_seconds", help_, labels=["did"])
        for did, seconds in sorted(dict(self._seconds()).items()):
            family.add_metric([did], seconds)
        yield family


class SpoolCollector(Collector):
    """The state of the spool, read when somebody asks."""

    def __init__(self, stats: Callable[[], SpoolStats], log_away: Callable[[], bool]) -> None:
        self._stats, self._log_away = stats, log_away

    def collect(self) -> Iterator[Metric]:
        now = self._stats()
        name = "claw_spool_"
        yield GaugeMetricFamily(name + "bytes", "On the disk, not yet all in the log.", now.bytes)
        yield GaugeMetricFamily(name + "records", "Records that the log does not have yet.", now.records)
        yield GaugeMetricFamily(
            name + "oldest_age_seconds", "Age of the oldest segment's first record.", now.oldest_age_s
        )
        yield GaugeMetricFamily(name + "log_away", "1 while events go to the spool at once.", float(self._log_away()))
        yield CounterMetricFamily(name + "spooled", "Records that were spooled.", now.spooled)
        yield CounterMetricFamily(name + "drained", "Records that left the spool for the log.", now.drained)
        yield CounterMetricFamily(name + "refused", "Records that the log will never take, set aside.", now.refused)
        yield CounterMetricFamily(name + "fsyncs", "Group commits.", now.fsyncs)

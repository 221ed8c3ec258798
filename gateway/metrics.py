"""Prometheus metrics of one gateway, in a registry of its own. No label holds an id or a header of a client."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
ACK_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """What the gateway counts. Attributes are named like the metrics, without `claw_gateway_`."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        name = "claw_gateway_"
        self.requests = Counter(
            name + "requests", "Requests by route and status.", ["route", "status"], registry=registry
        )
        self.request_seconds = Histogram(
            name + "request_seconds", "Model calls, from headers to last byte.", registry=registry, buckets=SECONDS
        )
        self.overhead_seconds = Histogram(
            name + "overhead_seconds", "Model calls, time outside the engine.", registry=registry, buckets=ACK_SECONDS
        )
        self.capture_ack_seconds = Histogram(
            name + "capture_ack_seconds", "Publish to acknowledgement.", registry=registry, buckets=ACK_SECONDS
        )
        self.captured = Counter(name + "captured", "Events of captured calls, by lane.", ["lane"], registry=registry)
        self.incomplete = Counter(
            name + "incomplete",
            "Captured calls that cannot be trained, by what is missing.",
            ["missing"],
            registry=registry,
        )
        self.failed = Counter(name + "failed", "Calls without tokens, by reason.", ["reason"], registry=registry)
        self.unacknowledged = Counter(
            name + "unacknowledged", "Replies kept back: no acknowledgement.", registry=registry
        )
        self.replayed = Counter(name + "replayed", "Retries answered with the captured reply.", registry=registry)
        self.upstream_retries = Counter(
            name + "upstream_retries", "Failed tries at an engine, by reason.", ["reason"], registry=registry
        )
        self.admission = Counter(name + "admission", "Groups asked for, by decision.", ["decision"], registry=registry)
        self._in_flight = Gauge(name + "in_flight", "Model calls under way.", registry=registry)
        self._workers = Gauge(name + "workers", "Servers that can take a call.", registry=registry)
        self.capture_lost = Counter(
            "claw_capture_lost",
            "Replies that a client saw and the log did not take; 0 by construction.",
            registry=registry,
        )

    def observe(self, in_flight: Callable[[], float], workers: Callable[[], float]) -> None:
        """Where the gauges read their values."""
        self._in_flight.set_function(in_flight)
        self._workers.set_function(workers)

    def exposition(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)

"""The counters of the worker, for Prometheus."""

from typing import get_args

from prometheus_client import Counter, Gauge, Histogram

from claw_r1.runtime.monitoring.registry import process_registry
from claw_r1.streams.partition.state import FoldOutcome

BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class StreamsMetrics:
    """One registry per worker: two in one process do not collide."""

    def __init__(self) -> None:
        self.registry = process_registry()
        self.facts = Counter("claw_streams_facts", "Records read, by outcome", ["outcome"], registry=self.registry)
        for outcome in get_args(FoldOutcome):
            self.facts.labels(outcome)  # from the start, so that the first of a kind is an increase
        self.fold_seconds = Counter(
            "claw_streams_fold_seconds", "Time spent decoding and folding", registry=self.registry
        )
        self.commits = Counter("claw_streams_commits", "Transactions committed", registry=self.registry)
        self.rows = Counter("claw_streams_rows", "Records written", registry=self.registry)
        self.commit_seconds = Histogram(
            "claw_streams_commit_seconds", "Duration of a flush", buckets=BUCKETS_S, registry=self.registry
        )
        self.healed = Counter("claw_streams_healed", "Records read again after a gap", registry=self.registry)
        self.decisions = Counter(
            "claw_streams_decisions", "Facts written by reactors", ["kind"], registry=self.registry
        )
        self.lag = Gauge("claw_streams_lag", "Facts of owned partitions that wait", registry=self.registry)
        self.partitions = Gauge("claw_streams_partitions", "Partitions owned", registry=self.registry)
        self.standby = Gauge("claw_streams_standby", "Partitions of others that are copied", registry=self.registry)

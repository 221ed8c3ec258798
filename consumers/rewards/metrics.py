"""The counters of a process of scorers, for Prometheus; every number is of one slot."""

from prometheus_client import Counter, Gauge, Histogram

from claw_r1.runtime.monitoring.registry import process_registry

BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 120)


class RewardsMetrics:
    """One registry each: two in one process (tests) do not collide."""

    def __init__(self) -> None:
        self.registry = process_registry()
        registry = self.registry
        self.judged = Counter("claw_rewards_judged", "Verdicts that were asked for", ["slot"], registry=registry)
        self.cached = Counter("claw_rewards_cached", "Subjects whose verdict was there", ["slot"], registry=registry)
        self.failed = Counter("claw_rewards_failed", "Subjects given up", ["slot", "reason"], registry=registry)
        self.tokens = Counter("claw_rewards_tokens", "Tokens that verdicts cost", ["slot"], registry=registry)
        self.in_flight = Gauge("claw_rewards_in_flight", "Verdicts that are being made", ["slot"], registry=registry)
        self.lag = Gauge(
            "claw_rewards_lag_seconds", "Age of the subject that was judged last", ["slot"], registry=registry
        )
        self.partitions = Gauge("claw_rewards_partitions", "Partitions held", ["slot"], registry=registry)
        self.rejoined = Counter(
            "claw_rewards_rejoined", "Times that a slot left its group", ["slot"], registry=registry
        )
        self.seconds = Histogram(
            "claw_rewards_verdict_seconds", "Time of one verdict", ["slot"], buckets=BUCKETS_S, registry=registry
        )

    def sums(self, *names: str) -> dict[str, int]:
        """Counters by their short names (`judged`, `tokens`), over all slots and labels."""
        samples = [sample for family in self.registry.collect() for sample in family.samples]
        return {n: int(sum(s.value for s in samples if s.name == f"claw_rewards_{n}_total")) for n in names}

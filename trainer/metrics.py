"""The counters of a trainer, for Prometheus; with several ranks, the first one has them."""

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import median
from typing import Literal, get_args

from prometheus_client import Counter, Gauge

from claw_r1.datapool.batch.eligibility import TOO_STALE
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.runtime.monitoring.registry import process_registry
from claw_r1.schemas.events import BatchTrained

Phase = Literal[
    "loading", "reading_pool", "waiting_for_groups", "waiting_for_evaluation", "training", "exporting", "ended"
]
"""The work of a trainer; `loading` lasts until its weights are in memory."""
PHASES: tuple[Phase, ...] = get_args(Phase)
EPISODES = ("response_tokens_mean", "truncated_share", "turns_mean", "failed_share")
LAST = (
    "reward",
    "staleness_max",
    "max_logprob_gap",
    "entropy",
    "kl_k3",
    "clip_share",
    "zero_variance_share",
    *EPISODES,
)
"""Metrics of a batch that are shown, and each as `nonfinite_` where it was no finite number;
metrics.jsonl has all."""
SPENT = ("wait_s", "read_s", "train_s")
"""Metrics of a batch's time by phase."""
PERIODS = 10
"""Newest periods between two batches, whose median is the run's own."""


class TrainerMetrics:
    """One registry per run: two in one process do not collide."""

    def __init__(self) -> None:
        self.registry = registry = process_registry()
        self._phase = Gauge("claw_trainer_phase", "1 for what it does now.", ["phase"], registry=registry)
        self._since = Gauge(
            "claw_trainer_phase_since_timestamp_seconds", "The time when it began with that.", registry=registry
        )
        self._batches = Counter("claw_trainer_batches", "Batches trained and published.", registry=registry)
        self._skipped = Counter("claw_trainer_skipped_steps", "Batches of which a step was skipped.", registry=registry)
        self._seconds = Counter(
            "claw_trainer_batch_seconds", "Time of batches, by what took it.", ["spent"], registry=registry
        )
        self._version = Gauge("claw_trainer_version", "The version published last.", registry=registry)
        self._trained_at = Gauge(
            "claw_trainer_last_batch_timestamp_seconds",
            "The time when the newest batch was published; 0: none yet.",
            registry=registry,
        )
        self._period = Gauge(
            "claw_trainer_batch_period_seconds",
            "Median time between the newest batches; 0: fewer than two.",
            registry=registry,
        )
        self._last = Gauge("claw_trainer_last_batch", "Metrics of the newest batch.", ["metric"], registry=registry)
        self._staleness_max = Gauge("claw_trainer_staleness_bound", "The staleness_max of the spec.", registry=registry)
        self._ready = Gauge("claw_trainer_groups_ready", "Groups that the next batch has so far.", registry=registry)
        self._needed = Gauge("claw_trainer_groups_needed", "Groups of a batch.", registry=registry)
        self._left_out = Gauge(
            "claw_trainer_groups_left_out",
            "Groups of the run left out when a batch was last short of groups, by reason.",
            ["reason"],
            registry=registry,
        )
        self._groups_skipped = Counter(
            "claw_trainer_groups_skipped",
            "Groups that this run will never train, by reason.",
            ["reason"],
            registry=registry,
        )
        self._groups_skipped.labels(TOO_STALE)  # from the start, so that the first one is an increase
        self.evaluations_given_up = Counter(
            "claw_trainer_evaluations_given_up", "Evaluations that were not waited for any more.", registry=registry
        )
        self._times_s: deque[float] = deque(maxlen=PERIODS + 1)
        self.phase: Phase = "loading"
        self.enter("loading")

    def enter(self, phase: Phase) -> None:
        """The trainer goes over to another phase."""
        self.phase = phase
        self._since.set_to_current_time()
        for name in PHASES:
            self._phase.labels(name).set(name == phase)

    def not_ready(self) -> str | None:
        """Returns the phase in which no batch can be trained yet, or any more; None while one can."""
        return self.phase if self.phase in ("loading", "reading_pool", "exporting", "ended") else None

    def begin(self, spec: BatchSpec) -> None:
        """The bounds of the run."""
        self._staleness_max.set(spec.staleness_max)
        self._needed.set(spec.groups_per_batch)

    def resume(self, earlier: Iterable[BatchTrained]) -> None:
        """The batches trained before this process; they count for its period alone."""
        for event in earlier:
            self._see(event)

    def trained(self, event: BatchTrained) -> None:
        """One more batch was published."""
        self._see(event)
        self._batches.inc()
        self._skipped.inc(bool(event.metrics.get("step_skipped") or event.metrics.get("critic_step_skipped")))
        for name in SPENT:
            self._seconds.labels(name.removesuffix("_s")).inc(max(0.0, event.metrics.get(name, 0.0)))
        self._ready.set(0)
        self._left_out.clear()

    def skip(self, reasons: Iterable[str]) -> None:
        """Groups are given up, one for each of these words."""
        for reason in reasons:
            self._groups_skipped.labels(reason).inc()

    def short_of_groups(self, ready: int, left_out: Mapping[str, int]) -> None:
        """The next batch is incomplete. left_out: number of groups for each reason."""
        self._ready.set(ready)
        self._left_out.clear()
        for reason, number in left_out.items():
            self._left_out.labels(reason).set(number)

    def _see(self, event: BatchTrained) -> None:
        self._times_s.append(event.envelope.occurred_at_us / 1e6)
        times = list(self._times_s)
        self._trained_at.set(times[-1])
        if len(times) > 1:
            self._period.set(median(after - before for before, after in pairwise(times)))
        self._version.set(event.version)
        self._last.clear()
        for name in (*LAST, *(f"nonfinite_{name}" for name in LAST)):
            if name in event.metrics:
                self._last.labels(name).set(event.metrics[name])

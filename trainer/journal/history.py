"""The work of a run so far, read from its own events: the fold that resuming starts from.

Invariant: what is kept of a batch that no replay needs is its groups' ids and its metrics.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from claw_r1.datapool.runs import Run
from claw_r1.schemas.events import BatchTrained, Event
from claw_r1.trainer.progress import NO_BATCH, TrainingProgress
from claw_r1.weights.digests import BLAKE3, algorithm_of


@dataclass(slots=True)
class History(Run):
    """One run's events, taken one after the other."""

    plans_after: int = NO_BATCH
    """The last sequence number up to which no plan is kept: a checkpoint holds their batches."""

    def __post_init__(self) -> None:
        self.keeps = lambda plan: plan.sequence > self.plans_after

    @property
    def progress(self) -> TrainingProgress:
        """The progress of the run by its publications, for checks whether it is over."""
        progress = TrainingProgress(given_up=set(self.given_up))
        for batch in self.batches:
            progress.sequence, progress.version = batch.sequence, batch.version
            progress.count(batch.sequence, batch.metrics)
        return progress

    @property
    def digest_algorithm(self) -> str:
        """The algorithm of the run's first version, which it keeps: equal bytes then have one name."""
        return algorithm_of(self.published[min(self.published)].digest) if self.published else BLAKE3

    def trained_before(self, sequence: int) -> list[BatchTrained]:
        """The trained batches of a lower sequence number, in order."""
        return [batch for batch in self.batches if batch.sequence < sequence]


def history_of(events: Iterable[Event | None], run_id: str, plans_after: int = NO_BATCH) -> History:
    """The history of one run; events of other runs on the same topics, and non-events (None), are skipped."""
    history = History(run_id, plans_after=plans_after)
    for event in events:
        if event is not None and getattr(event, "run_id", None) == run_id:
            history.take(event)
    return history

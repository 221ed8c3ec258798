"""The work of a run so far, read from its own events: the fold that resuming starts from.

Invariant: an event costs the same however many came before it, and what is kept of a batch that no replay needs is its
groups' ids and its metrics.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from claw_r1.datapool.batch.plan import groups_of
from claw_r1.schemas.events import (
    BatchAssembled,
    BatchSkipped,
    BatchTrained,
    Event,
    RunEnded,
    RunStarted,
    VersionEvaluated,
    WeightsPublished,
)
from claw_r1.trainer.progress import NO_BATCH, TrainingProgress


@dataclass(slots=True)
class History:
    """One run's events, taken one after the other."""

    plans_after: int = NO_BATCH
    """The last sequence number up to which only the groups and the number of plans are kept: a checkpoint holds their
    batches."""
    incarnations: int = 0
    started: RunStarted | None = None
    """The newest."""
    plans: dict[int, BatchAssembled] = field(default_factory=dict)
    """By sequence number, of those after `plans_after`."""
    sequence_free: int = 0
    """The number above those of all plans; there is a plan for each number below."""
    trained: dict[int, BatchTrained] = field(default_factory=dict)
    """By sequence number."""
    digests: dict[int, str] = field(default_factory=dict)
    """The digests of published weights, by version."""
    exported: tuple[int, str] | None = None
    """The highest version that was published with an export, and the URI of that."""
    consumed_groups: set[str] = field(default_factory=set)
    """Groups that this run planned or skipped: it plans none of them again."""
    given_up: set[int] = field(default_factory=set)
    """Batches that were planned and could not be read any more: never trained."""
    evaluated: dict[int, VersionEvaluated] = field(default_factory=dict)
    """By version."""
    ended: RunEnded | None = None
    """None, too, where the run was started again behind its end."""

    @property
    def progress(self) -> TrainingProgress:
        """The progress of the run by what it published, for whoever asks whether it is over."""
        trained = [self.trained[sequence] for sequence in sorted(self.trained)]
        progress = TrainingProgress(given_up=set(self.given_up))
        for batch in trained:
            progress.sequence, progress.version = batch.sequence, batch.version
            progress.count(batch.sequence, batch.metrics)
        return progress

    @property
    def version_free(self) -> int:
        """The lowest version number above all that were ever published."""
        return max(self.digests, default=-1) + 1

    def trained_before(self, sequence: int) -> list[BatchTrained]:
        """The trained batches of a lower sequence number, in order."""
        return [self.trained[number] for number in sorted(self.trained) if number < sequence]

    def take(self, event: Event) -> None:
        """One more event of the run. Events of other kinds change nothing."""
        match event:
            case RunStarted():
                self.incarnations, self.started, self.ended = self.incarnations + 1, event, None
            case BatchAssembled():
                self._take_plan(event)
            case BatchTrained():
                self.trained[event.sequence] = event
            case WeightsPublished():
                self._take_weights(event)
            case BatchSkipped():
                self.consumed_groups.update(event.group_ids)
                if event.sequence is not None:
                    self.given_up.add(event.sequence)
            case VersionEvaluated():
                self.evaluated[event.version] = event
            case RunEnded():
                self.ended = event
            case _:
                pass

    def _take_plan(self, plan: BatchAssembled) -> None:
        self.sequence_free = max(self.sequence_free, plan.sequence + 1)
        self.consumed_groups.update(groups_of(plan))
        if plan.sequence > self.plans_after:
            self.plans[plan.sequence] = plan

    def _take_weights(self, weights: WeightsPublished) -> None:
        self.digests[weights.version] = weights.digest
        if weights.checkpoint_uri and (self.exported is None or weights.version >= self.exported[0]):
            self.exported = weights.version, weights.checkpoint_uri


def history_of(events: Iterable[Event | None], run_id: str, plans_after: int = NO_BATCH) -> History:
    """The history of one run; events of other runs on the same topics, and what is none (None), are passed over."""
    history = History(plans_after)
    for event in events:
        if event is not None and getattr(event, "run_id", None) == run_id:
            history.take(event)
    return history

"""What a run has done so far, read from its own events: the fold that resuming starts from. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from datapool.batch.plan import groups_of
from schemas.events import BatchAssembled, BatchSkipped, BatchTrained, Event, RunEnded, RunStarted, WeightsPublished


@dataclass(frozen=True, slots=True)
class History:
    """Plans and trained batches by sequence, published weights by version (the last announcement of each)."""

    incarnations: int = 0
    plans: Mapping[int, BatchAssembled] = field(default_factory=dict)
    trained: Mapping[int, BatchTrained] = field(default_factory=dict)
    published: Mapping[int, WeightsPublished] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()
    given_up: frozenset[int] = frozenset()
    """Batches that were planned and could not be read any more: never trained."""
    ended: RunEnded | None = None

    @property
    def consumed_groups(self) -> set[str]:
        """Groups that this run planned or skipped: it plans none of them again."""
        return {group_id for plan in self.plans.values() for group_id in groups_of(plan)} | self.skipped

    @property
    def version_free(self) -> int:
        """The lowest version number above all that were ever published."""
        return max(self.published, default=-1) + 1

    def rewards(self, before: int) -> list[float]:
        """Mean reward of each trained batch with sequence < before, in order."""
        return [self.trained[s].metrics["reward"] for s in sorted(self.trained) if s < before]


def fold(history: History, event: Event) -> History:
    """One more event of the run. Events of other kinds change nothing."""
    match event:
        case RunStarted():
            return replace(history, incarnations=history.incarnations + 1)
        case BatchAssembled():
            return replace(history, plans={**history.plans, event.sequence: event})
        case BatchTrained():
            return replace(history, trained={**history.trained, event.sequence: event})
        case WeightsPublished():
            return replace(history, published={**history.published, event.version: event})
        case BatchSkipped():
            given_up = set() if event.sequence is None else {event.sequence}
            return replace(
                history, skipped=history.skipped | set(event.group_ids), given_up=history.given_up | given_up
            )
        case RunEnded():
            return replace(history, ended=event)
        case _:
            return history


def history_of(events: Iterable[Event], run_id: str) -> History:
    """The history of one run; events of other runs on the same topics are passed over."""
    history = History()
    for event in events:
        if getattr(event, "run_id", None) == run_id:
            history = fold(history, event)
    return history

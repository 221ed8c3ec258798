"""The way through the history that every kind of dataset takes: partition by partition, fold, choose, fetch
calls by position."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from claw_r1.consumers.export.choose import Chosen, choose
from claw_r1.consumers.export.folded_history import FoldedHistory, fold_partition
from claw_r1.consumers.export.offsets import OffsetVector
from claw_r1.datapool.batch.spec import BatchSpec
from claw_r1.datapool.fold.state import GroupState
from claw_r1.eventlog.records import Position, Record
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.events import CallCaptured

ExportProgress = Callable[[int, int], None]
"""Facts read, of how many at most."""
Histories = Sequence[FoldedHistory]


@dataclass(slots=True)
class Tally:
    """The counts of exported and omitted items."""

    counts: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)


def partitions(
    settings: LogSettings, vector: OffsetVector, tally: Tally, progress: ExportProgress, before: Histories = ()
) -> Iterator[FoldedHistory]:
    """The folded facts of one partition after the other. before: earlier facts' states, by partition."""
    read = 0

    def advance(records: int) -> None:
        nonlocal read
        read += records
        progress(read, vector.offsets)

    for partition in range(vector.partitions):
        folded = before[partition] if before else FoldedHistory()
        fold_partition(settings, vector.of_partition(partition), vector.partitions, advance, folded)
        tally.unreadable += folded.unreadable
        yield folded


def chosen_groups(groups: Iterable[GroupState], spec: BatchSpec | None, tally: Tally) -> Iterator[list[Chosen]]:
    """Yields the trajectories of each group to export, in the order of the log: by the first captured call of each."""
    for group in sorted(groups, key=_first_offset):
        tally.counts["groups_seen"] += 1
        choice = choose(group, spec)
        if isinstance(choice, str):
            tally.left_out[choice] += 1
            continue
        tally.counts["groups"] += 1
        tally.counts["trajectories"] += len(choice)
        yield choice


def _first_offset(group: GroupState) -> tuple[int, str]:
    captures = (step.capture for trajectory in group.trajectories.values() for step in trajectory.steps.values())
    offsets = (at.position.offset for at in captures if at is not None and at.position is not None)
    return min(offsets, default=-1), group.group_id


def positions(chosen: Chosen) -> list[Position]:
    """Returns the positions of a trajectory's calls, in order."""
    return [Position.of(step.position) for step in chosen.steps if step.position is not None]


def calls_of(chosen: Chosen, records: dict[Position, Record]) -> dict[str, CallCaptured]:
    """The calls of a trajectory by call_id."""
    events = (records[position].event() for position in positions(chosen))
    return {event.call_id: event for event in events if isinstance(event, CallCaptured)}

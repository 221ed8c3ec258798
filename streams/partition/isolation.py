"""The search for facts that keep the rows of a group from being made: they are parked one by one, and all others count.
Pure.

Facts are searched by halves, so that one among thousands is found with a few projections.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from claw_r1.datapool.fold.fold import flag
from claw_r1.datapool.fold.project import GroupImage
from claw_r1.datapool.fold.state import Fact, GroupState
from claw_r1.eventlog.records import Record
from claw_r1.schemas.events import FactPosition, GroupEvicted, TrajectoryEvicted
from claw_r1.streams.partition.row_sizes import writable_changes

Fold = Callable[[GroupState | None, Fact, FactPosition], GroupState]
SEARCHES_MAX = 50
"""Facts of a group and flush that are each found alone among those that no row can be made with."""


class FoldedFact(NamedTuple):
    """A fact that is in the state and in no batch yet."""

    record: Record
    fact: Fact
    is_redelivered: bool
    """Delivered before: whatever it had to say is in the state, or its dead letter exists."""
    parked: bool = False
    """The fold raised on it: its subject is flagged."""

    @property
    def position(self) -> FactPosition:
        """The position of the fact in the log."""
        return FactPosition(topic=self.record.topic, partition=self.record.partition, offset=self.record.offset)


Park = Callable[[GroupState | None, FoldedFact, Exception], GroupState | None]
"""(state before, fact, its error) -> the state with the fact's subject flagged."""


class _Sound(NamedTuple):
    """The number of facts that have a state whose rows can be made, that state with its image, and the fault of the
    next fact."""

    facts: int
    image: GroupImage | None
    state: GroupState | None
    bug: Exception | None
    """None: there is no next."""


def isolate(before: GroupImage | None, facts: Sequence[FoldedFact], fold: Fold, park: Park) -> GroupState | None:
    """The state after all facts since `before` (what is written) of which rows can be made; the others are parked.

    Each search costs some projections, and meanwhile the worker does nothing else: after `SEARCHES_MAX` of them a fact
    takes those of its trajectory with it that have not been tried.
    """
    state, rest, searches = before.state if before is not None else None, facts, 0
    while rest:
        sound = _sound(before, state, rest, fold)
        before, state, rest, searches = sound.image, sound.state, rest[sound.facts :], searches + 1
        if sound.bug is not None:
            spoilt, rest = _with_its_like(rest) if searches > SEARCHES_MAX else (rest[:1], rest[1:])
            for folded in spoilt:
                state = _flagged(state, folded) if folded.parked else park(state, folded, sound.bug)
    return state


def _sound(image: GroupImage | None, state: GroupState | None, facts: Sequence[FoldedFact], fold: Fold) -> _Sound:
    """Finds how many facts may follow `state`. image: of a state before it, whose rows can be made.

    It tries 1, 2, 4, ... more facts and then halves of the rest: one among thousands is found with a few
    projections of the changes since the last good one, and thousands in a row with one each.
    """
    good, ahead, bad, bug = 0, 1, len(facts) + 1, None
    while bad - good > 1:
        upto = (good + bad) // 2 if bug is not None else min(good + ahead, len(facts))
        try:
            after = _after(image, state, facts[good:upto], fold)
        except Exception as raised:  # noqa: BLE001 - a bug in a fold is not known by type
            bad, bug = upto, raised
        else:
            good, (image, state), ahead = upto, after, 2 * ahead
    return _Sound(good, image, state, bug)


def _after(
    image: GroupImage | None, state: GroupState | None, facts: Iterable[FoldedFact], fold: Fold
) -> tuple[GroupImage | None, GroupState | None]:
    """The state after more facts, with its image. Raises whatever keeps its rows from being made."""
    for folded in facts:
        state = _flagged(state, folded) if folded.parked else fold(state, folded.fact, folded.position)
    return (image if state is None else writable_changes(image, state)[0]), state


def _with_its_like(facts: Sequence[FoldedFact]) -> tuple[list[FoldedFact], list[FoldedFact]]:
    """The first fact with all others of its trajectory, and the rest: an eviction, too, which makes room."""
    first, *others = facts
    like = [folded for folded in others if _is_like(first, folded)]
    return [first, *like], [folded for folded in others if not _is_like(first, folded)]


def _is_like(first: FoldedFact, other: FoldedFact) -> bool:
    return _trajectory_of(other) == _trajectory_of(first) and not isinstance(
        other.fact, TrajectoryEvicted | GroupEvicted
    )


def _trajectory_of(folded: FoldedFact) -> str | None:
    return getattr(folded.fact, "trajectory_id", None)


def _flagged(state: GroupState | None, folded: FoldedFact) -> GroupState | None:
    """After a fact that is parked: once more, where it was delivered again, it says nothing."""
    return state if folded.is_redelivered else flag(state, folded.fact)

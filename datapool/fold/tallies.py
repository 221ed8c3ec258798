"""The figures that the rows of a trajectory and of a group need of all their steps and members, kept up one change at a
time.

Invariant: nothing is mutated, and a tally is a function of the things it is over: how many of them changed at once, and in
which order, shows in no row. So a flush costs what changed in it, and copies of pointers.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec import Struct

from claw_r1.datapool.digests import tie
from claw_r1.datapool.fold import bounds
from claw_r1.datapool.fold.readiness import counted_calls, is_full, valued
from claw_r1.datapool.fold.state import StepState
from claw_r1.datapool.immutable_map import added
from claw_r1.datapool.sorted_columns import Cells, Columns
from claw_r1.schemas.codec import encode_item
from claw_r1.schemas.events import GroupMember, GroupRecord, RewardSlot, TrajectoryRecord

Thing = TypeVar("Thing")
T = TypeVar("T")
Word = TypeVar("Word", str, int)
CallPlace = tuple[int, str]
"""(first received, call_id)"""


class Spread(NamedTuple):
    """The mean of returns, and their standard deviation with ddof 1 where there are several."""

    mean: float | None = None
    deviation: float | None = None
    equal: bool = False


class Surroundings(NamedTuple):
    """The part of a step's record that comes from its trajectory."""

    by_index: tuple[RewardSlot, ...]
    """Rewards by index that mean this call at present."""
    chain_known: bool
    task: str | None
    kind: str
    """The kind of the call, decided by all calls of the trajectory."""


class StepImage(Struct, frozen=True):
    """The image of a step as it was last written, with its origin."""

    state: StepState
    around: Surroundings
    tie: bytes
    """Its part in the digest of the trajectory."""
    trainable: bool
    total: float | None


Changes = Mapping[str, tuple[Thing | None, Thing | None]]
"""id -> the thing as it was before, and as it is; None: not there."""


class CallsTally(Struct, frozen=True):
    """Over the steps of a trajectory, by their facts."""

    calls: Columns[CallPlace] = Columns()
    """The captured calls: the id, the offset, and both as they stand in the record."""
    numbers: Mapping[str, int] = {}
    runs: Mapping[str, int] = {}
    """The number of captures that each run sampled; likewise the versions."""
    lowest: Mapping[int, int] = {}
    highest: Mapping[int, int] = {}

    def changed(self, changes: Changes[StepState]) -> "CallsTally":
        """After these changes; a step stays, and so does a capture."""
        if not changes:
            return self
        captures = {name: _both(pair, lambda step: step.capture) for name, pair in changes.items()}
        return CallsTally(
            self.calls.changed(*_moved(changes)),
            _summed(self.numbers, changes, _step_numbers),
            _summed(self.runs, captures, lambda capture: _once(capture.policy_run_id)),
            _summed(self.lowest, captures, lambda capture: _once(capture.min_version)),
            _summed(self.highest, captures, lambda capture: _once(capture.max_version)),
        )

    @property
    def ids(self) -> Sequence[str]:
        """The ids of captured calls, in order."""
        return self.calls.column(0)

    @property
    def counted(self) -> Sequence[str]:
        """The calls that a completion counts: `counted_calls`."""
        return counted_calls(self.ids) if self.numbers.get("dotted") else self.ids


class StepsTally(Struct, frozen=True):
    """Over the steps of a trajectory, by what is written of them."""

    ties: Columns[str] = Columns()
    """Parts of the trajectory's digest, by call_id."""
    trainable: int = 0
    totals: Mapping[str, float] = {}
    """The totals of captured calls that have one."""

    def changed(self, changes: Changes[StepImage]) -> "StepsTally":
        """After these changes; a step stays."""
        if not changes:
            return self
        return StepsTally(
            self.ties.changed((), {call_id: (now.tie,) for call_id, (_, now) in changes.items() if now is not None}),
            self.trainable + sum(_number(now) - _number(before) for before, now in changes.values()),
            _valued(self.totals, changes, lambda step: None if step.state.capture is None else step.total),
        )


def _number(step: StepImage | None) -> int:
    return step is not None and step.trainable


class MembersTally(Struct, frozen=True):
    """Over the members of a group."""

    members: Columns[str] = Columns()
    """By trajectory_id: the member, the same as it stands in the record, and its part in the group's digest."""
    numbers: Mapping[str, int] = {}
    lowest: Mapping[int, int] = {}
    """Versions of those that are ready, and how many have each."""
    highest: Mapping[int, int] = {}
    returns: Mapping[str, float] = {}
    """The returns of the members that are ready and have one."""

    def changed(self, changes: Changes[GroupMember]) -> "MembersTally":
        """After these changes."""
        if not changes:
            return self
        gone = [name for name, (before, now) in changes.items() if before is not None and now is None]
        cells = {
            name: (now, encode_item(GroupRecord, "members", now), tie(name, now.digest))
            for name, (_, now) in changes.items()
            if now is not None
        }
        return MembersTally(
            self.members.changed(gone, cells),
            _summed(self.numbers, changes, _member_numbers),
            _summed(self.lowest, changes, lambda member: _once(member.min_version if member.ready else None)),
            _summed(self.highest, changes, lambda member: _once(member.max_version if member.ready else None)),
            _valued(self.returns, changes, lambda member: member.return_total if member.ready else None),
        )

    @property
    def spread(self) -> "Spread":
        """The spread of the returns, by exact sums over sorted things; nothing unless each ready member has a return."""
        returns = self.returns.values()
        if not returns or len(returns) != self.numbers.get("ready"):
            return Spread()
        mean = math.fsum(returns) / len(returns)
        if len(returns) == 1:
            return Spread(mean)
        if len({*returns}) == 1:
            return Spread(mean, 0.0, equal=True)
        # A product is the same on every machine, `**` only nearly.
        return Spread(
            mean, math.sqrt(math.fsum([(off := value - mean) * off for value in returns]) / (len(returns) - 1))
        )

    def member(self, name: str) -> GroupMember | None:
        """By trajectory_id."""
        cells = self.members.get(name)
        return None if cells is None else cells[0]


def _moved(changes: Changes[StepState]) -> tuple[list[CallPlace], dict[CallPlace, Cells]]:
    """Places that are left, and cells of the calls that are new where they are."""
    left: list[CallPlace] = []
    cells: dict[CallPlace, Cells] = {}
    for call_id, (before, now) in changes.items():
        old = _place(call_id, before)
        if now is None or now.capture is None or now.capture.position is None:
            continue
        place, offset = (now.first_received_us, call_id), now.capture.position.offset
        if old is not None and before is not None:
            if old == place and before.capture is now.capture:
                continue
            left += [old] if old != place else []
        items = (("calls", call_id), ("offsets", offset))
        cells[place] = call_id, offset, *(encode_item(TrajectoryRecord, *item) for item in items)
    return left, cells


def _place(call_id: str, step: StepState | None) -> CallPlace | None:
    return None if step is None or step.capture is None else (step.first_received_us, call_id)


def _step_numbers(step: StepState) -> Iterator[tuple[str, int]]:
    if step.slots:
        yield "rewards", valued(step.slots)
        yield "full", is_full(step.slots)
    if step.capture is not None:
        yield "tools", step.capture.has_tools
        yield "bytes", bounds.name_bytes(step.capture.call_id) + bounds.CALL_BYTES
        yield "dotted", "." in step.capture.call_id


def _member_numbers(member: GroupMember) -> Iterator[tuple[str, int]]:
    yield "open", member.status == "open"
    yield "ready", member.ready
    yield "bytes", bounds.name_bytes(member.trajectory_id) + bounds.MEMBER_BYTES


def _once(word: Word | None) -> tuple[tuple[Word, int], ...]:
    return () if word is None else ((word, 1),)


def _both(pair: tuple[Thing | None, Thing | None], part: Callable[[Thing], T | None]) -> tuple[T | None, T | None]:
    before, now = pair
    return None if before is None else part(before), None if now is None else part(now)


def _summed(
    before: Mapping[Word, int], changes: Changes[Thing], words: Callable[[Thing], Iterable[tuple[Word, int]]]
) -> Mapping[Word, int]:
    """Numbers by word, without those of removed items. A word whose numbers sum to 0 is omitted."""
    more: dict[Word, int] = {}
    for pair in changes.values():
        for sign, thing in zip((-1, 1), pair, strict=True):
            for word, number in words(thing) if thing is not None else ():
                more[word] = more.get(word, 0) + sign * number
    return added(before, more)


def _valued(
    before: Mapping[str, float], changes: Changes[Thing], value_of: Callable[[Thing], float | None]
) -> Mapping[str, float]:
    """Values by id, of what has one."""
    values = {
        name: value for name, (_, now) in changes.items() if now is not None and (value := value_of(now)) is not None
    }
    gone = [name for name in changes if name in before and name not in values]
    if not values and not gone:
        return before
    merged = {**before, **values}
    for name in gone:
        del merged[name]
    return merged

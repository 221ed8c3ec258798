"""Whether a trajectory or a group is data, and each reason why not as a stable word.

Nothing here waits: a late call, reward or deadline changes the answer when its fact comes.
"""

import re
from collections.abc import Iterator, Sequence

from datapool.fold import bounds
from datapool.fold.state import GroupState, Slots, TrajectoryState
from datapool.fold.trainable import FOLD_BUG
from schemas.events import GroupMember

CHOICE = re.compile(r"\.[1-9][0-9]*\Z")


def counted_calls(calls: Sequence[str]) -> list[str]:
    """The first choice of each call, in order: what a completion counts, and an index. calls: ids captured, in order.

    Choice k > 0 of a call is `<call_id>.<k>`; its siblings are known by that, whether or not choice 0 was captured.
    """
    first: dict[str, str] = {}
    for call in calls:
        base = CHOICE.sub("", call) if "." in call else call
        first[base] = min(first.get(base, call), call, key=_choice_rank)
    return list(first.values())


def _choice_rank(call: str) -> tuple[int, str]:
    """Of choices of one call: by number."""
    return len(call), call


def trajectory_reasons(
    now: TrajectoryState, calls: Sequence[str], trainable: int, has_outcome: bool, *, left_out: int
) -> tuple[str, ...]:
    """Why a trajectory is not ready, sorted.

    calls: ids captured, in order; trainable: how many; has_outcome: whether its end was judged; left_out: calls that its record has no room for.
    """
    return tuple(sorted([*_trajectory_reasons(now, calls, trainable, has_outcome), *_overfull(now, left_out)]))


def _overfull(now: TrajectoryState, calls_left_out: int) -> Iterator[str]:
    if calls_left_out:
        yield "too_many_calls"
    if any(len(slots) >= bounds.REWARDS_MAX for slots in _slots(now)):
        yield "too_many_rewards"


def _trajectory_reasons(now: TrajectoryState, calls: Sequence[str], trainable: int, has_outcome: bool) -> Iterator[str]:
    if now.buggy:
        yield FOLD_BUG
    if not now.known:
        yield "unknown"
    ending = now.ending
    if ending.status == "failed" and not has_outcome:
        yield "failed_without_outcome"
    if ending.status not in ("completed", "failed"):
        yield ending.status
    if ending.calls is not None and (counted := len(counted_calls(calls))) != ending.calls:
        yield "calls_missing" if counted < ending.calls else "calls_uncounted"
    # More rewards than counted are welcome: workers and people judge what the agent has completed.
    if ending.rewards is not None and _counted_rewards(now) < ending.rewards:
        yield "rewards_missing"
    if trainable == 0:
        yield "no_trainable_call"


def _counted_rewards(now: TrajectoryState) -> int:
    """Slots with a value; the completion's own is none of them. One that was taken back, or whose scorer gave up, is empty."""
    return sum(slot.value is not None for slots in _slots(now) for slot in slots.values())


def _slots(now: TrajectoryState) -> Iterator[Slots]:
    """Of the trajectory, and of each call."""
    yield now.slots
    yield from (step.slots for step in now.steps.values())


def group_reasons(group: GroupState, members: Sequence[GroupMember], *, left_out: int) -> tuple[str, ...]:
    """Why a group is not ready, sorted. members, left_out: those that count, see `project.members`."""
    overfull = ["too_many_members"] if left_out else []
    return tuple(sorted([*_group_reasons(group, members), *overfull]))


def _group_reasons(group: GroupState, members: Sequence[GroupMember]) -> Iterator[str]:
    ready = sum(member.ready for member in members)
    size = group.declaration.expected_size if group.declaration and not group.closing else None
    if group.buggy:
        yield FOLD_BUG
    if any(member.status == "open" for member in members):
        yield "members_open"
    if size is not None and ready < size:
        yield "members_missing"
    if ready == 0:
        yield "no_ready_member"

"""The decision whether a trajectory or a group is data, with each reason against it as a stable code.

Nothing here waits: a late call, reward or deadline changes the answer when its fact comes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from claw_r1.datapool.fold import bounds
from claw_r1.datapool.fold.state import GroupState, SlotMap, TrajectoryState
from claw_r1.datapool.fold.trainable import FOLD_BUG
from claw_r1.schemas.events import GroupRecord

Sums = Mapping[str, int]
"""The sums over steps, or members (`tallies`); missing ones are 0."""
EVICTED = "evicted"
"""The one reason of a group that is no more than a stub."""
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
    """Orders the choices of one call: by number."""
    return len(call), call


def trajectory_reasons(
    now: TrajectoryState, numbers: Sums, *, counted: int, trainable: int, has_outcome: bool, left_out: int
) -> tuple[str, ...]:
    """Returns why a trajectory is not ready, sorted.

    numbers: of all its steps. counted: calls, as a completion counts them; trainable: how many calls are; has_outcome: whether
    its end was judged; left_out: calls that its record has no room for.
    """
    reasons = _trajectory_reasons(now, numbers, counted, trainable, has_outcome)
    return tuple(sorted([*reasons, *_overfull(now, numbers, left_out)]))


def _overfull(now: TrajectoryState, numbers: Sums, calls_left_out: int) -> Iterator[str]:
    if calls_left_out:
        yield "too_many_calls"
    if numbers.get("full") or is_full(now.slots):
        yield "too_many_rewards"


def is_full(slots: SlotMap) -> bool:
    """Returns whether a record has no room for more rewards."""
    return len(slots) >= bounds.REWARDS_MAX


def valued(slots: SlotMap) -> int:
    """Slots with a value, without the completion's own. One taken back, or whose scorer gave up, is empty."""
    return sum(slot.value is not None for slot in slots.values())


def _trajectory_reasons(
    now: TrajectoryState, numbers: Sums, counted: int, trainable: int, has_outcome: bool
) -> Iterator[str]:
    if now.buggy:
        yield FOLD_BUG
    if not now.known:
        yield "unknown"
    ending = now.ending
    if ending.status == "failed" and not has_outcome:
        yield "failed_without_outcome"
    if ending.status not in ("completed", "failed"):
        yield ending.status
    if ending.calls is not None and counted != ending.calls:
        yield "calls_missing" if counted < ending.calls else "calls_uncounted"
    # More rewards than counted are welcome: workers and people judge what the agent has completed.
    if ending.rewards is not None and valued(now.slots) + numbers.get("rewards", 0) < ending.rewards:
        yield "rewards_missing"
    if trainable == 0:
        yield "no_trainable_call"


def group_reasons(group: GroupState, numbers: Sums, *, left_out: int) -> tuple[str, ...]:
    """Returns why a group is not ready, sorted. numbers: of the members that count; left_out: those that its record has
    no room for."""
    if group.eviction is not None:
        return (EVICTED,)
    overfull = ["too_many_members"] if left_out else []
    return tuple(sorted([*_group_reasons(group, numbers), *overfull]))


def _group_reasons(group: GroupState, numbers: Sums) -> Iterator[str]:
    ready = numbers.get("ready", 0)
    size = group.declaration.expected_size if group.declaration and not group.closing else None
    if group.buggy:
        yield FOLD_BUG
    if numbers.get("open"):
        yield "members_open"
    if size is not None and ready < size:
        yield "members_missing"
    if ready == 0:
        yield "no_ready_member"


def is_evicted(record: GroupRecord) -> bool:
    """Returns whether the row is the stub of an evicted group, which has no other row."""
    return EVICTED in record.reasons


def waits_for_members(group: GroupState) -> bool:
    """Returns whether a group cannot become ready before more of its members have ended or it is closed."""
    if group.closing is not None or group.declaration is None or group.declaration.expected_size is None:
        return False
    ended = sum(member.ending.status != "open" for member in group.trajectories.values())
    return ended < group.declaration.expected_size


def call_order(now: TrajectoryState) -> tuple[str, ...]:
    """Captured calls by (first received, call_id)."""
    captured = ((step.first_received_us, call_id) for call_id, step in now.steps.items() if step.capture is not None)
    return tuple(call_id for _, call_id in sorted(captured))

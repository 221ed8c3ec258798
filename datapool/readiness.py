"""Whether a trajectory or a group is data, and each reason why not as a stable word.

Nothing here waits: a late call, reward or deadline changes the answer when its fact comes.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from datapool import bounds
from datapool.state import GroupState, TrajectoryState
from datapool.trainable import FOLD_BUG
from datapool.trajectory import OUTCOME
from schemas.events import GroupMember

CHOICE = re.compile(r"\.\d+\Z")


def trajectory_reasons(
    now: TrajectoryState, calls: Collection[str], trainable: int, judged: bool, *, left_out: int
) -> tuple[str, ...]:
    """Why a trajectory is not ready, sorted.

    calls: ids captured; trainable: how many; judged: its outcome is; left_out: calls that its record has no room for.
    """
    return tuple(sorted([*_trajectory_reasons(now, calls, trainable, judged), *_overfull(now, left_out)]))


def _overfull(now: TrajectoryState, calls_left_out: int) -> Iterator[str]:
    if calls_left_out:
        yield "too_many_calls"
    if any(len(slots) >= bounds.REWARDS_MAX for slots in (now.slots, *[step.slots for step in now.steps.values()])):
        yield "too_many_rewards"


def _trajectory_reasons(now: TrajectoryState, calls: Collection[str], trainable: int, judged: bool) -> Iterator[str]:
    if now.buggy:
        yield FOLD_BUG
    if not now.known:
        yield "unknown"
    ending = now.ending
    if ending.status == "failed" and not judged:
        yield "failed_without_outcome"
    if ending.status not in ("completed", "failed"):
        yield ending.status
    if ending.calls is not None and _counted_calls(calls) < ending.calls:
        yield "calls_missing"
    if ending.rewards is not None and _counted_rewards(now) < ending.rewards:
        yield "rewards_missing"
    if trainable == 0:
        yield "no_trainable_call"


def _counted_calls(calls: Collection[str]) -> int:
    known = frozenset(calls)
    return len(known) - sum(1 for call in known if "." in call and _is_choice(call, known))


def _is_choice(call: str, known: Collection[str]) -> bool:
    return CHOICE.search(call) is not None and CHOICE.sub("", call) in known


def _counted_rewards(now: TrajectoryState) -> int:
    """Slots that somebody filled beside the completion itself."""
    of_completion = OUTCOME in now.slots and now.slots[OUTCOME].event_id == now.ending.event_id
    return len(now.slots) + sum(len(step.slots) for step in now.steps.values()) - of_completion


def group_reasons(group: GroupState, members: Sequence[GroupMember], *, left_out: int) -> tuple[str, ...]:
    """Why a group is not ready, sorted. members, left_out: those that count, see `project.members`."""
    overfull = ["too_many_members"] if left_out else []
    return tuple(sorted([*_group_reasons(group, members), *overfull]))


def _group_reasons(group: GroupState, members: Sequence[GroupMember]) -> Iterator[str]:
    ready = sum(member.ready for member in members)
    size = group.declaration.expected_size if group.declaration and not group.closing else None
    if group.buggy:
        yield FOLD_BUG
    if any(member.status in ("open", "unknown") for member in members):
        yield "members_open"
    if size is not None and ready < size:
        yield "members_missing"
    if ready == 0:
        yield "no_ready_member"

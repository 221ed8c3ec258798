"""A trajectory's calls in the order of their tree, with each call's phases of waiting.

A line is read from its beginning to its end; branches of a call are placed between it and the call that continues it.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from claw_r1.consumers.pool.inspection import steps_of
from claw_r1.datapool.fold.forest import continues
from claw_r1.datapool.fold.readiness import counted_calls
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.schemas.events import RewardSlot, StepRecord, TrajectoryRecord

KEPT = 4
"""CallTrees of trajectories that were looked at last."""


class CallTree(NamedTuple):
    """Steps and calls, both in the tree's order."""

    steps: list[StepRecord]
    calls: list[dict[str, Any]]  # JSON: a call in a few numbers
    place: dict[str, int]


class CallTrees:
    """The latest ones; where rows of steps changed, these are read again and no others. Safe from any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[dict[str, bytes], CallTree]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, rows: PoolRows, row: TrajectoryRecord) -> CallTree:
        """Returns the call tree of a trajectory as the rows have it now."""
        name = row.group_id, row.trajectory_id
        digests = {each.call_id: each.row for each in rows.store.digests(*name)}
        with self._lock:
            before, kept = self._kept.get(name, ({}, CallTree([], [], {})))
            if before != digests or name not in self._kept:
                same = {step.call_id: step for step in kept.steps if before[step.call_id] == digests.get(step.call_id)}
                self._kept[name] = digests, outline(steps_of(rows, row, same))
            self._kept.move_to_end(name)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return self._kept[name][1]


def outline(steps: Sequence[StepRecord]) -> CallTree:
    """steps: in the trajectory's order."""
    captures = {step.call_id: step for step in steps}
    ordered, depths, continuing = _tree(captures)
    place = {step.call_id: at for at, step in enumerate(ordered)}
    calls = [
        {
            "at": place[step.call_id],
            "call_id": step.call_id,
            "base": place.get(step.base_call_id or ""),
            "goes_on": step.call_id in continuing,
            "depth": depths[step.call_id],
            "prompt": step.prompt_length,
            "response": step.response_length,
            **_times(step, captures.get(step.base_call_id or "")),
            "versions": [step.min_version, step.max_version],
            "reward": step.reward_total,
            "trainable": step.trainable,
            "captured": step.position is not None,
            "attempts": len(step.attempts),
        }
        for step in ordered
    ]
    return CallTree(ordered, calls, place)


def _tree(captures: Mapping[str, StepRecord]) -> tuple[list[StepRecord], dict[str, int], set[str]]:
    """Steps in the tree's order, branches between each and its root, and those that go on with their base."""
    upon: dict[str, list[StepRecord]] = {}
    for step in captures.values():
        if step.base_call_id in captures:
            upon.setdefault(step.base_call_id or "", []).append(step)
    ordered: list[StepRecord] = []
    depths: dict[str, int] = {}
    continuing: set[str] = set()
    roots = [step for step in captures.values() if step.base_call_id not in captures]
    for root in [*roots, *captures.values()]:  # the second: bases in a circle are under no root
        waiting = [(root, 0)]
        while waiting:
            step, depth = waiting.pop()
            if step.call_id in depths:
                continue
            depths[step.call_id] = depth
            ordered.append(step)
            children = upon.get(step.call_id, [])
            main = next((child for child in children if continues(captures.get, child)), None)
            if main is not None:
                continuing.add(main.call_id)
                waiting.append((main, depth))
            waiting += [(child, depth + 1) for child in reversed(children) if child is not main]
    return ordered, depths, continuing


def _times(step: StepRecord, base: StepRecord | None) -> dict[str, int | None]:
    """Microseconds. between: from the base's last token to the request, while tools ran; first: from being sent on to the first
    token; generation: from there to the last, where nothing was streamed from being sent on."""
    times, earlier = step.timings, base.timings if base is not None else None
    if times is None:
        return dict.fromkeys(("received_us", "done_us", "between_us", "queue_us", "first_us", "generation_us"))
    first = times.first_token_us
    return {
        "received_us": times.received_us,
        "done_us": times.done_us,
        "between_us": None if earlier is None else times.received_us - earlier.done_us,
        "queue_us": times.dispatched_us - times.received_us,
        "first_us": None if first is None else first - times.dispatched_us,
        "generation_us": times.done_us - (times.dispatched_us if first is None else first),
    }


def totals(tree: CallTree) -> dict[str, Any]:  # JSON
    """Sums up all calls: when they began and ended, time by what it went to, tokens."""
    timed = [call for call in tree.calls if call["received_us"] is not None]
    spans = ("between_us", "queue_us", "first_us", "generation_us")
    return {
        "begins_us": min((call["received_us"] for call in timed), default=None),
        "ends_us": max((call["done_us"] for call in timed), default=None),
        "time_us": {span: sum(max(0, call[span] or 0) for call in timed) for span in spans},
        "prompt_tokens": sum(call["prompt"] for call in tree.calls),
        "response_tokens": sum(call["response"] for call in tree.calls),
    }


def rewards_of(row: TrajectoryRecord, tree: CallTree) -> list[dict[str, Any]]:  # JSON
    """Every slot with the place of the call that it judges; null: the trajectory. An index means a call's first choice."""
    counted = counted_calls(row.calls)
    slots: list[tuple[str | None, RewardSlot]] = [
        (counted[index] if (index := slot.step_index) is not None and index < len(counted) else None, slot)
        for slot in row.rewards
    ]
    slots += [(step.call_id, slot) for step in tree.steps for slot in step.rewards if slot.step_index is None]
    fields = ("step_index", "source", "name", "value", "failed", "occurred_at_us")
    return [
        {"call_id": call_id, "at": tree.place.get(call_id or "")} | {name: getattr(slot, name) for name in fields}
        for call_id, slot in slots
    ]

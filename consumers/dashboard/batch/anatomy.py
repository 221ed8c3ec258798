"""The anatomy of a batch: its members by its plan, and the phases of waiting of each of them. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean, pstdev

import numpy as np

from claw_r1.consumers.dashboard.call_tree import outline
from claw_r1.consumers.pool.inspection import steps_of
from claw_r1.datapool.view.listing.columns import TASK_CHARACTERS
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.schemas.events import BatchAssembled, PlannedTrajectory
from claw_r1.schemas.json_values import JsonDict

GROUPS_MAX = 200
RETURNS_MAX = 64
"""The most returns of one group."""
DOTS_MAX = 600
"""Members that are drawn by return and length."""
LANE_CALLS_MAX = 200
"""A member of more calls has no lane."""


def by_advantage(plan: BatchAssembled) -> list[PlannedTrajectory]:
    """Its members, those that move the policy most first."""
    return sorted(plan.trajectories, key=lambda each: -abs(each.advantage))


def tokens_of(member: PlannedTrajectory) -> int | None:
    """Returns its sampled tokens; None: the plan is older than these figures."""
    return None if member.figures is None else sum(member.figures.response_lengths)


def tiles(plan: BatchAssembled) -> JsonDict:
    """A batch in a few numbers; lengths are those of replies, in sampled tokens. Its deviation is the trainer's `reward_std`; a
    group of one is none of equal returns."""
    returns = [each.reward for each in plan.trajectories]
    figures = [each.figures for each in plan.trajectories if each.figures is not None]
    lengths = [length for each in figures for length in each.response_lengths]
    low, high = np.percentile(lengths, (50, 95)) if lengths else (None, None)
    return {
        "return_mean": fmean(returns) if returns else None,
        "return_deviation": pstdev(returns) if returns else None,
        "groups": len({each.group_id for each in plan.trajectories}),
        "equal_groups": sum(each["members"] > 1 and not each["spread"] for each in groups(plan)),
        "replies": len(lengths),
        "truncated": sum(each.truncated for each in figures) if lengths else None,
        "length_p50": low,
        "length_p95": high,
        "tokens": sum(lengths) if lengths else None,
    }


def groups(plan: BatchAssembled) -> list[JsonDict]:
    """Its groups with their returns, those that differ most first."""
    returns: dict[str, list[float]] = defaultdict(list)
    trained: Counter[str] = Counter()
    for each in plan.trajectories:
        returns[each.group_id].append(each.reward)
        trained[each.group_id] += any(step.trained for step in each.steps)
    rows = [
        {
            "group_id": name,
            "members": len(values),
            "trained": trained[name],
            "mean": fmean(values),
            "spread": max(values) - min(values),
            "returns": sorted(values)[:RETURNS_MAX],
        }
        for name, values in returns.items()
    ]
    return sorted(rows, key=lambda row: -row["spread"])


def samplers(plan: BatchAssembled) -> list[JsonDict]:
    """The versions that sampled its members, from the newest on."""
    ranges = Counter((each.min_version, each.max_version) for each in plan.trajectories)
    newest = sorted(ranges, key=lambda each: (each[1] is None, -(each[1] or 0), -(each[0] or 0)))
    return [{"versions": each, "members": ranges[each]} for each in newest]


def dots(members: Sequence[PlannedTrajectory]) -> list[list[object]]:
    """The first members as return, tokens, and replies that were cut off."""
    return [
        [
            each.reward,
            tokens_of(each),
            each.figures.truncated if each.figures else 0,
        ]
        for each in members[:DOTS_MAX]
    ]


def member(rows: PoolRows, planned: PlannedTrajectory) -> JsonDict:
    """A member as its plan and the pool have it."""
    row = rows.trajectory(planned.group_id, planned.trajectory_id)
    group = rows.group_row(planned.group_id)
    task = (row and row.task) or (group and group.task)
    figures = planned.figures
    return {
        "group_id": planned.group_id,
        "trajectory_id": planned.trajectory_id,
        "task": task and task[:TASK_CHARACTERS],
        "return": planned.reward,
        "advantage": planned.advantage,
        "versions": [planned.min_version, planned.max_version],
        "tokens": tokens_of(planned),
        "truncated": figures.truncated if figures else 0,
        "calls": len(planned.steps),
        "calls_trained": sum(step.trained for step in planned.steps),
        "lane": lane(rows, planned),
    }


def lane(rows: PoolRows, planned: PlannedTrajectory) -> list[list[int | None]]:
    """Per call: when it came in, its microseconds in the queue, to the first token and from there on, and the version
    that ended it."""
    row = rows.trajectory(planned.group_id, planned.trajectory_id)
    if row is None or len(row.calls) + row.calls_left_out > LANE_CALLS_MAX:
        return []
    calls = [call for call in outline(steps_of(rows, row)).calls if call["received_us"] is not None]
    names = ("received_us", "queue_us", "first_us", "generation_us")
    return [
        [*(call[name] for name in names), call["versions"][1]]
        for call in sorted(calls, key=lambda call: call["received_us"])
    ]

"""Questions to a view of the pool: filters over steps, trajectories and groups, in pages, and counts over what they find.

Invariant: a page is what comes after a key, in order of ids, so that pages neither overlap nor miss a row that stayed;
a field of a filter that is None asks nothing. What only a step has (quality, scores, trainable, curated tags) is asked of
a trajectory or a group as: does one of its steps meet all of that? Tags are those that a batch spec sees: a step carries
its trajectory's and its group's. Steps are filtered by the store, the others (far fewer) by a scan.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pydantic import ValidationError

from claw_r1.datapool.batch.spec import Bounds, first_problem
from claw_r1.datapool.view.rows import PoolRows, as_step
from claw_r1.datapool.view.store import RowIds, Value, as_bytes, as_text, tag_list
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord

if TYPE_CHECKING:
    from claw_r1.datapool.view.listing.columns import RowKind
    from claw_r1.datapool.view.listing.tables import PoolTables


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFilter:
    """Bounds are inclusive. Rewards: of a step its total, of a trajectory its return, of a group its mean."""

    channel: str | None = None
    group: str | None = None
    trajectory: str | None = None
    agent: str | None = None
    tags: tuple[str, ...] = ()
    """All of them: its own, curated ones too, and those of what it is in."""
    trainable: bool | None = None
    ready: bool | None = None
    """Trajectories and groups only."""
    quality_min: float | None = None
    quality_max: float | None = None
    scores: Mapping[str, Bounds] = field(default_factory=dict)
    """By scorer, `name@version`."""
    reward_min: float | None = None
    reward_max: float | None = None
    version_min: int | None = None
    """Some token is of this version or a later one."""
    version_max: int | None = None
    """Some token is of this version or an earlier one."""
    text: str | None = None
    """Part of an id, of a tag, of a task or of a note, in any case."""


EVERYTHING = PoolFilter()
BOUND = re.compile(r"(?P<scorer>.+@\d+)(?P<sign>>=|<=)(?P<value>.+)")
SIGNS = {">=": "min", "<=": "max"}


def score_bounds(texts: Iterable[str]) -> dict[str, Bounds]:
    """`entropy@1>=0.3` and `entropy@1<=0.9`, as a person types them, as bounds by scorer. Raises ValueError."""
    ends: dict[str, dict[str, str]] = {}
    for text in texts:
        bound = BOUND.fullmatch(text)
        if bound is None:
            raise ValueError(f"takes 'SCORER@VERSION>=NUMBER' or <=, in quotes, not {text!r}")
        ends.setdefault(bound["scorer"], {})[SIGNS[bound["sign"]]] = bound["value"]
    try:
        return {scorer: Bounds.model_validate(bounds) for scorer, bounds in ends.items()}
    except ValidationError as error:
        raise ValueError(first_problem(error)) from error


def trajectory_id(record: TrajectoryRecord) -> tuple[str, ...]:
    return record.group_id, record.trajectory_id


def find_steps(
    rows: PoolRows,
    pool_filter: PoolFilter,
    after: tuple[str, ...] = (),
    limit: int | None = None,
    also: Callable[[StepRecord], bool] = lambda _: True,
) -> list[StepRecord]:
    """Steps that meet the filter and `also`, behind `after` (a step's ids), at most `limit`."""
    where, values = conditions(rows, pool_filter)
    place: RowIds | None = (after[0], after[1], after[2]) if after else None
    steps: list[StepRecord] = []
    chunk = limit
    while True:
        page = rows.store.select(where, values, place, chunk)
        records = (as_step(value) for _, value in page)
        steps += [
            step for step in records if (pool_filter.text is None or step_says(step, pool_filter.text)) and also(step)
        ]
        if limit is None or len(steps) >= limit or len(page) < (chunk or 0):
            return steps if limit is None else steps[:limit]
        place, chunk = page[-1][0], 1000  # few of a page passed: ask for more at once


class Carriers(NamedTuple):
    """The groups and trajectories that have tags of their own beside the steps."""

    groups: Mapping[str, tuple[str, ...]]
    trajectories: Sequence[TrajectoryRecord]

    def carrying(self, tag: str) -> tuple[list[str], list[tuple[str, ...]]]:
        """Ids of those that have a tag."""
        groups = [group_id for group_id, tags in self.groups.items() if tag in tags]
        return groups, [trajectory_id(row) for row in self.trajectories if tag in row.tags]


def _carriers(rows: PoolRows) -> Carriers:
    return Carriers(
        {row.group_id: row.tags for row in rows.group_rows() if row.tags},
        [row for row in rows.trajectory_rows() if row.tags],
    )


def conditions(rows: PoolRows, pool_filter: PoolFilter) -> tuple[str, list[Value]]:
    """SQL over the columns of `claw_r1.datapool.view.store`, and its values. The text is not in it: it reads the record."""
    carriers = _carriers(rows) if pool_filter.tags and rows.tables is None else Carriers({}, ())
    comparisons: list[tuple[str, Value | None]] = [
        ("g = ?", _bytes(pool_filter.group)),
        ("t = ?", _bytes(pool_filter.trajectory)),
        ("channel = ?", _bytes(pool_filter.channel)),
        ("agent = ?", _bytes(pool_filter.agent)),
        ("trainable = ?", pool_filter.trainable),
        ("quality >= ?", pool_filter.quality_min),
        ("quality <= ?", pool_filter.quality_max),
        ("reward >= ?", pool_filter.reward_min),
        ("reward <= ?", pool_filter.reward_max),
        ("max_version >= ?", pool_filter.version_min),
        ("min_version <= ?", pool_filter.version_max),
    ]
    clauses: list[tuple[str, list[Value]]] = [
        (condition, [value]) for condition, value in comparisons if value is not None
    ]
    clauses += [clause for scorer, bounds in pool_filter.scores.items() for clause in _scored(scorer, bounds)]
    for tag in pool_filter.tags:
        clauses.append(_tagged(*(rows.tables or carriers).carrying(tag), tag))
    return " AND ".join(condition for condition, _ in clauses) or "1", [
        value for _, values in clauses for value in values
    ]


def _scored(scorer: str, bounds: Bounds) -> Iterator[tuple[str, list[Value]]]:
    for sign, value in ((">=", bounds.min), ("<=", bounds.max)):
        if value is not None:
            yield f"scores ->> ? {sign} ?", [scorer, value]


def _tagged(groups: Sequence[str], trajectories: Sequence[tuple[str, ...]], tag: str) -> tuple[str, list[Value]]:
    """The step's own tags stand beside it, those of its group and its trajectory do not."""
    clauses: list[tuple[str, Value]] = [("instr(tags, ?) > 0", tag_list([tag]))]
    if groups:
        clauses.append(("g IN (SELECT CAST(value AS BLOB) FROM json_each(?))", json.dumps(groups)))
    if trajectories:
        pairs = "SELECT CAST(value ->> 0 AS BLOB), CAST(value ->> 1 AS BLOB) FROM json_each(?)"
        clauses.append((f"(g, t) IN ({pairs})", json.dumps(trajectories)))
    return f"({' OR '.join(condition for condition, _ in clauses)})", [value for _, value in clauses]


def find_trajectories(
    rows: PoolRows, pool_filter: PoolFilter, after: tuple[str, ...] = (), limit: int | None = None
) -> list[TrajectoryRecord]:
    """Trajectories that meet the filter, behind `after` (group_id, trajectory_id)."""
    if rows.tables is not None:
        listed = rows.tables.select("trajectories", pool_filter, after, limit)
        return [row for row in listed if isinstance(row, TrajectoryRecord)]
    tests = _set_tests(
        (after or None, lambda row: trajectory_id(row) > after),
        (pool_filter.trajectory, lambda row: row.trajectory_id == pool_filter.trajectory),
    )
    tests += _tests(pool_filter, attrgetter("return_total"), _words_of_trajectory)
    tests += _set_tests((pool_filter.agent, lambda row: row.agent == pool_filter.agent))
    if (holding := _holding(rows, pool_filter)) is not None:
        tests.append(lambda row: trajectory_id(row) in holding)
    return list(islice(_meeting(rows.trajectory_rows(), tests), limit))


def find_groups(
    rows: PoolRows, pool_filter: PoolFilter, after: tuple[str, ...] = (), limit: int | None = None
) -> list[GroupRecord]:
    """Groups that meet the filter, whole or not, behind `after` (group_id,)."""
    if rows.tables is not None:
        return [row for row in rows.tables.select("groups", pool_filter, after, limit) if isinstance(row, GroupRecord)]
    tests = _set_tests(
        (after or None, lambda row: (row.group_id,) > after),
        (pool_filter.trajectory, lambda row: _has_member(rows, row, pool_filter.trajectory or "")),
    )
    tests += _tests(pool_filter, attrgetter("reward_mean"), _words_of_group)
    tests += _set_tests((pool_filter.agent, lambda row: pool_filter.agent in _agents(rows, row)))
    if (holding := _holding(rows, pool_filter)) is not None:
        groups = {place[0] for place in holding}
        tests.append(lambda row: row.group_id in groups)
    return list(islice(_meeting(rows.group_rows(), tests), limit))


R = TypeVar("R", TrajectoryRecord, GroupRecord)
Test = Callable[[Any], bool]  # Any: a TrajectoryRecord or a GroupRecord; mypy knows no row with both their fields


def _tests(
    pool_filter: PoolFilter, reward: Callable[[Any], float | None], words: Callable[[Any], Iterable[str | None]]
) -> list[Test]:
    """Makes the tests of trajectories and groups alike, the cheap ones first: most rows fail one of them."""
    text = (pool_filter.text or "").lower()
    return _set_tests(
        (pool_filter.group, lambda row: row.group_id == pool_filter.group),
        (pool_filter.channel, lambda row: row.channel == pool_filter.channel),
        (pool_filter.ready, lambda row: row.ready == pool_filter.ready),
        (pool_filter.version_min, lambda row: _within(row.max_version, pool_filter.version_min, None)),
        (pool_filter.version_max, lambda row: _within(row.min_version, None, pool_filter.version_max)),
        (pool_filter.reward_min, lambda row: _within(reward(row), pool_filter.reward_min, None)),
        (pool_filter.reward_max, lambda row: _within(reward(row), None, pool_filter.reward_max)),
        (pool_filter.text, lambda row: _hold(words(row), text)),
    )


def _holding(rows: PoolRows, pool_filter: PoolFilter) -> set[tuple[str, ...]] | None:
    """(group_id, trajectory_id) of what meets that part of a filter that steps decide; None where it asks nothing.

    Of tags alone those suffice that it has itself, without a step. A group without trajectories has one without a name.
    """
    of_steps = _of_steps(pool_filter)
    if of_steps == EVERYTHING:
        return None
    places: set[tuple[str, ...]] = {*rows.store.trajectories(*conditions(rows, of_steps))}
    if of_steps == PoolFilter(tags=pool_filter.tags):
        places.update(_carrying(rows, frozenset(pool_filter.tags)))
    return places


def asks_steps(pool_filter: PoolFilter) -> bool:
    """Returns whether steps decide which trajectories and groups meet a filter."""
    return _of_steps(pool_filter) != EVERYTHING


def _of_steps(pool_filter: PoolFilter) -> PoolFilter:
    return PoolFilter(
        tags=pool_filter.tags,
        trainable=pool_filter.trainable,
        quality_min=pool_filter.quality_min,
        quality_max=pool_filter.quality_max,
        scores=pool_filter.scores,
    )


def _carrying(rows: PoolRows, tags: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """Places that have the tags whatever their steps have."""
    carriers = _carriers(rows)
    groups = {group_id for group_id, own in carriers.groups.items() if tags.issubset(own)}
    yield from ((group_id, "") for group_id in groups)
    for row in rows.trajectory_rows() if groups else carriers.trajectories:
        if row.group_id in groups or tags.issubset((*row.tags, *carriers.groups.get(row.group_id, ()))):
            yield trajectory_id(row)


def _has_member(rows: PoolRows, group: GroupRecord, name: str) -> bool:
    """A record that has no room for all members is not asked alone."""
    if any(member.trajectory_id == name for member in group.members):
        return True
    return group.members_left_out > 0 and rows.trajectory(group.group_id, name) is not None


def _agents(rows: PoolRows, group: GroupRecord) -> Iterator[str | None]:
    """The declared one's, and its members'."""
    yield group.agent
    for member in group.members:
        row = rows.trajectory(group.group_id, member.trajectory_id)
        yield row.agent if row is not None else None


def _set_tests(*tests: tuple[object, Test]) -> list[Test]:
    """Returns the tests whose field of the filter is not None."""
    return [test for value, test in tests if value is not None]


def _meeting(rows: Iterable[R], tests: Iterable[Test]) -> Iterable[R]:
    for test in tests:
        rows = filter(test, rows)
    return rows


def _words_of_trajectory(row: TrajectoryRecord) -> Iterable[str | None]:
    return row.trajectory_id, row.group_id, row.task, row.metadata, *row.tags


def _words_of_group(row: GroupRecord) -> Iterable[str | None]:
    return row.group_id, row.task, *row.tags


def step_says(step: StepRecord, text: str) -> bool:
    """Returns whether an id, a tag or the note of a step holds the text, in any case."""
    note, tags = (step.curation.note, step.curation.tags) if step.curation else (None, ())
    return _hold((step.call_id, step.trajectory_id, step.group_id, note, *step.tags, *tags), text.lower())


def _hold(words: Iterable[str | None], text: str) -> bool:
    """Returns whether one of the words holds the text, which is in lower case and has no null character."""
    return text in "\0".join(filter(None, words)).lower()


def _within(value: float | None, low: float | None, high: float | None) -> bool:
    """Returns whether a value is within bounds; a missing value never is."""
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else as_bytes(text)


def stats(
    rows: PoolRows, pool_filter: PoolFilter = EVERYTHING, steps: Iterable[StepRecord] | None = None
) -> dict[str, Any]:
    """Counts over what the filter finds of each kind: steps and tokens by channel, states and reasons. JSON.

    steps: those that it finds, for who looks for a text elsewhere, too.
    """
    return {
        **_summaries(rows, pool_filter),
        "steps": _step_stats(_tallies(rows, pool_filter) if steps is None else map(_tally, steps)),
    }


def _summaries(rows: PoolRows, pool_filter: PoolFilter) -> dict[str, Any]:  # JSON
    if rows.tables is not None:
        return {kind: _listed_summary(rows.tables, kind, pool_filter) for kind in ("groups", "trajectories")}
    trajectories = find_trajectories(rows, pool_filter)
    return {
        "groups": _summary(find_groups(rows, pool_filter)),
        "trajectories": {**_summary(trajectories), "status": _counted(row.status for row in trajectories)},
    }


def _listed_summary(tables: "PoolTables", kind: "RowKind", pool_filter: PoolFilter) -> dict[str, Any]:  # JSON
    mask = tables.mask(kind, pool_filter)
    counted = {name: tables.counted(kind, name, mask) for name in ("ready", "channel", "reasons")}
    summary = {
        "total": int(mask.sum()),
        "ready": counted["ready"][True],
        "channels": dict(sorted((channel or "unknown", many) for channel, many in counted["channel"].items())),
        "not_ready": dict(sorted(counted["reasons"].items())),
    }
    if kind == "groups":
        return summary
    return {**summary, "status": dict(sorted(tables.counted(kind, "status", mask).items()))}


def _summary(rows: list[TrajectoryRecord] | list[GroupRecord]) -> dict[str, Any]:  # JSON
    return {
        "total": len(rows),
        "ready": sum(row.ready for row in rows),
        "channels": _counted(row.channel or "unknown" for row in rows),
        "not_ready": _counted(reason for row in rows for reason in row.reasons),
    }


StepTally = tuple[str, str, int, int, int, int, int]
"""channel, reasons; of how many steps, trainable ones, curated ones, prompt and response tokens."""


def _step_stats(tallies: Iterable[StepTally]) -> dict[str, Any]:  # JSON
    channels: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    total = dict.fromkeys(("total", "trainable", "curated", "prompt_tokens", "response_tokens"), 0)
    for channel, why_not, *counts in tallies:
        channels[channel or "unknown"] += counts[0]
        reasons.update(dict.fromkeys(filter(None, why_not.split(",")), counts[0]))
        total = {name: before + more for (name, before), more in zip(total.items(), counts, strict=True)}
    return {**total, "channels": dict(sorted(channels.items())), "not_trainable": dict(sorted(reasons.items()))}


def _tallies(rows: PoolRows, pool_filter: PoolFilter) -> Iterator[StepTally]:
    if pool_filter.text is not None:
        yield from map(_tally, find_steps(rows, pool_filter))
        return
    columns = "channel, reasons, count(*), sum(trainable), sum(curated), sum(prompt_length), sum(response_length)"
    tallies: Iterator[tuple[Any, ...]] = rows.store.tally(columns, "channel, reasons", *conditions(rows, pool_filter))
    for channel, *rest in tallies:
        yield (as_text(channel), *rest)


def _tally(step: StepRecord) -> StepTally:
    return (
        step.channel,
        ",".join(step.reasons),
        1,
        step.trainable,
        step.curation is not None,
        step.prompt_length,
        step.response_length,
    )


def _counted(names: Iterable[str]) -> Mapping[str, int]:
    return dict(sorted(Counter(names).items()))

"""Questions to a view of the pool: filters over steps, trajectories and groups, in pages, and counts over what they find.

Invariant: a page is what comes after a key, in order of ids, so that pages neither overlap nor miss a row that stayed;
a field of a filter that is None asks nothing. What only a step has (quality, scores, trainable, curated tags) is asked of
a trajectory or a group as: does one of its steps meet all of that? Tags are those that a batch spec sees: a step carries
its trajectory's and its group's. Steps are filtered by the store, the others (far fewer) by a scan.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from datapool.batch.spec import Bounds
from datapool.view.rows import PoolRows, as_step
from datapool.view.store import Ids, Value, as_bytes, as_text, tag_list
from schemas.events import GroupRecord, StepRecord, TrajectoryRecord


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


def trajectory_id(record: TrajectoryRecord) -> tuple[str, ...]:
    return record.group_id, record.trajectory_id


def group_id(record: GroupRecord) -> tuple[str, ...]:
    return (record.group_id,)


def find_steps(
    rows: PoolRows,
    wanted: PoolFilter,
    after: tuple[str, ...] = (),
    limit: int | None = None,
    also: Callable[[StepRecord], bool] = lambda _: True,
) -> list[StepRecord]:
    """Steps that meet the filter and `also`, behind `after` (a step's ids), at most `limit`."""
    where, values = conditions(rows, wanted)
    place: Ids | None = (after[0], after[1], after[2]) if after else None
    found: list[StepRecord] = []
    chunk = limit
    while True:
        page = rows.store.select(where, values, place, chunk)
        records = (as_step(value) for _, value in page)
        found += [step for step in records if (wanted.text is None or step_says(step, wanted.text)) and also(step)]
        if limit is None or len(found) >= limit or len(page) < (chunk or 0):
            return found if limit is None else found[:limit]
        place, chunk = page[-1][0], 1000  # few of a page passed: ask for more at once


def without_text(wanted: PoolFilter) -> PoolFilter:
    """The same filter, for who looks for the text elsewhere."""
    return replace(wanted, text=None)


class Carriers(NamedTuple):
    """What has tags of its own beside the steps."""

    groups: Mapping[str, tuple[str, ...]]
    trajectories: Sequence[TrajectoryRecord]


def _carriers(rows: PoolRows) -> Carriers:
    return Carriers(
        {row.group_id: row.tags for row in rows.group_rows() if row.tags},
        [row for row in rows.trajectory_rows() if row.tags],
    )


NOBODY = Carriers({}, ())


def conditions(rows: PoolRows, wanted: PoolFilter) -> tuple[str, list[Value]]:
    """SQL over the columns of `datapool.view.store`, and its values. The text is not in it: it reads the record."""
    return _conditions(wanted, _carriers(rows) if wanted.tags else NOBODY)


def _conditions(wanted: PoolFilter, carriers: Carriers) -> tuple[str, list[Value]]:
    asked: list[tuple[str, Value | None]] = [
        ("g = ?", _bytes(wanted.group)),
        ("t = ?", _bytes(wanted.trajectory)),
        ("channel = ?", _bytes(wanted.channel)),
        ("agent = ?", _bytes(wanted.agent)),
        ("trainable = ?", wanted.trainable),
        ("quality >= ?", wanted.quality_min),
        ("quality <= ?", wanted.quality_max),
        ("reward >= ?", wanted.reward_min),
        ("reward <= ?", wanted.reward_max),
        ("max_version >= ?", wanted.version_min),
        ("min_version <= ?", wanted.version_max),
    ]
    given: list[tuple[str, list[Value]]] = [(condition, [value]) for condition, value in asked if value is not None]
    given += [one for scorer, bounds in wanted.scores.items() for one in _scored(scorer, bounds)]
    given += [_tagged(carriers, tag) for tag in wanted.tags]
    return " AND ".join(condition for condition, _ in given) or "1", [value for _, values in given for value in values]


def _scored(scorer: str, bounds: Bounds) -> Iterator[tuple[str, list[Value]]]:
    for sign, value in ((">=", bounds.min), ("<=", bounds.max)):
        if value is not None:
            yield f"scores ->> ? {sign} ?", [scorer, value]


def _tagged(carriers: Carriers, tag: str) -> tuple[str, list[Value]]:
    """The step's own tags stand beside it, those of its group and its trajectory do not."""
    groups = [group_id for group_id, tags in carriers.groups.items() if tag in tags]
    trajectories = [trajectory_id(row) for row in carriers.trajectories if tag in row.tags]
    asked: list[tuple[str, Value]] = [("instr(tags, ?) > 0", tag_list([tag]))]
    if groups:
        asked.append(("g IN (SELECT CAST(value AS BLOB) FROM json_each(?))", json.dumps(groups)))
    if trajectories:
        pairs = "SELECT CAST(value ->> 0 AS BLOB), CAST(value ->> 1 AS BLOB) FROM json_each(?)"
        asked.append((f"(g, t) IN ({pairs})", json.dumps(trajectories)))
    return f"({' OR '.join(condition for condition, _ in asked)})", [value for _, value in asked]


def find_trajectories(
    rows: PoolRows, wanted: PoolFilter, after: tuple[str, ...] = (), limit: int | None = None
) -> list[TrajectoryRecord]:
    """Trajectories that meet the filter, behind `after` (group_id, trajectory_id)."""
    tests = _asked(
        (after or None, lambda row: trajectory_id(row) > after),
        (wanted.trajectory, lambda row: row.trajectory_id == wanted.trajectory),
    )
    tests += _tests(wanted, attrgetter("return_total"), _words_of_trajectory)
    tests += _asked((wanted.agent, lambda row: row.agent == wanted.agent))
    if (holding := _holding(rows, wanted)) is not None:
        tests.append(lambda row: trajectory_id(row) in holding)
    return list(islice(_meeting(rows.trajectory_rows(), tests), limit))


def find_groups(
    rows: PoolRows, wanted: PoolFilter, after: tuple[str, ...] = (), limit: int | None = None
) -> list[GroupRecord]:
    """Groups that meet the filter, whole or not, behind `after` (group_id,)."""
    tests = _asked(
        (after or None, lambda row: group_id(row) > after),
        (wanted.trajectory, lambda row: _has_member(rows, row, wanted.trajectory or "")),
    )
    tests += _tests(wanted, attrgetter("reward_mean"), _words_of_group)
    tests += _asked((wanted.agent, lambda row: wanted.agent in _agents(rows, row)))
    if (holding := _holding(rows, wanted)) is not None:
        groups = {place[0] for place in holding}
        tests.append(lambda row: row.group_id in groups)
    return list(islice(_meeting(rows.group_rows(), tests), limit))


Row = TypeVar("Row", TrajectoryRecord, GroupRecord)
Test = Callable[[Any], bool]  # Any: a TrajectoryRecord or a GroupRecord; mypy knows no row with both their fields


def _tests(
    wanted: PoolFilter, reward: Callable[[Any], float | None], words: Callable[[Any], Iterable[str | None]]
) -> list[Test]:
    """What a filter asks of trajectories and groups alike, the cheap ones first: most rows fail one of them."""
    sought = (wanted.text or "").lower()
    return _asked(
        (wanted.group, lambda row: row.group_id == wanted.group),
        (wanted.channel, lambda row: row.channel == wanted.channel),
        (wanted.ready, lambda row: row.ready == wanted.ready),
        (wanted.version_min, lambda row: _within(row.max_version, wanted.version_min, None)),
        (wanted.version_max, lambda row: _within(row.min_version, None, wanted.version_max)),
        (wanted.reward_min, lambda row: _within(reward(row), wanted.reward_min, None)),
        (wanted.reward_max, lambda row: _within(reward(row), None, wanted.reward_max)),
        (wanted.text, lambda row: _hold(words(row), sought)),
    )


def _holding(rows: PoolRows, wanted: PoolFilter) -> set[tuple[str, ...]] | None:
    """(group_id, trajectory_id) of what meets that part of a filter that steps decide; None where it asks nothing.

    Of tags alone those suffice that it has itself, without a step. A group without trajectories has one without a name.
    """
    of_steps = _of_steps(wanted)
    if of_steps == EVERYTHING:
        return None
    carriers = _carriers(rows) if wanted.tags else NOBODY
    found: set[tuple[str, ...]] = {*rows.store.trajectories(*_conditions(of_steps, carriers))}
    if of_steps == PoolFilter(tags=wanted.tags):
        found.update(_carrying(rows, frozenset(wanted.tags), carriers))
    return found


def asks_steps(wanted: PoolFilter) -> bool:
    """Whether steps decide which trajectories and groups meet a filter."""
    return _of_steps(wanted) != EVERYTHING


def _of_steps(wanted: PoolFilter) -> PoolFilter:
    return PoolFilter(
        tags=wanted.tags,
        trainable=wanted.trainable,
        quality_min=wanted.quality_min,
        quality_max=wanted.quality_max,
        scores=wanted.scores,
    )


def _carrying(rows: PoolRows, tags: frozenset[str], carriers: Carriers) -> Iterator[tuple[str, ...]]:
    """Places that have the tags whatever their steps have."""
    groups = {group_id for group_id, own in carriers.groups.items() if tags.issubset(own)}
    yield from ((group_id, "") for group_id in groups)
    for row in rows.trajectory_rows() if groups else carriers.trajectories:
        if row.group_id in groups or tags.issubset((*row.tags, *carriers.groups.get(row.group_id, ()))):
            yield trajectory_id(row)


def _has_member(rows: PoolRows, group: GroupRecord, name: str) -> bool:
    """A record that has no room for all members is not asked alone."""
    if any(one.trajectory_id == name for one in group.members):
        return True
    return group.members_left_out > 0 and rows.trajectory(group.group_id, name) is not None


def _agents(rows: PoolRows, group: GroupRecord) -> Iterator[str | None]:
    """The declared one's, and its members'."""
    yield group.agent
    for member in group.members:
        row = rows.trajectory(group.group_id, member.trajectory_id)
        yield row.agent if row is not None else None


def _asked(*tests: tuple[object, Test]) -> list[Test]:
    """Those whose field of the filter is not None."""
    return [test for value, test in tests if value is not None]


def _meeting(rows: Iterable[Row], tests: Iterable[Test]) -> Iterable[Row]:
    for test in tests:
        rows = filter(test, rows)
    return rows


def _words_of_trajectory(row: TrajectoryRecord) -> Iterable[str | None]:
    return row.trajectory_id, row.group_id, row.task, row.metadata, *row.tags


def _words_of_group(row: GroupRecord) -> Iterable[str | None]:
    return row.group_id, row.task, *row.tags


def step_says(step: StepRecord, text: str) -> bool:
    """Whether an id, a tag or the note of a step holds the text, in any case."""
    note, tags = (step.curation.note, step.curation.tags) if step.curation else (None, ())
    return _hold((step.call_id, step.trajectory_id, step.group_id, note, *step.tags, *tags), text.lower())


def _hold(words: Iterable[str | None], sought: str) -> bool:
    """Whether one of them holds what is sought, which is in lower case and has no null character."""
    return sought in "\0".join(filter(None, words)).lower()


def _within(value: float | None, low: float | None, high: float | None) -> bool:
    """What has no value is within no bounds."""
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else as_bytes(text)


def stats(rows: PoolRows, wanted: PoolFilter = EVERYTHING, steps: Iterable[StepRecord] | None = None) -> dict[str, Any]:
    """Counts over what the filter finds of each kind: steps and tokens by channel, states and reasons. JSON.

    steps: those that it finds, for who looks for a text elsewhere, too.
    """
    trajectories, groups = find_trajectories(rows, wanted), find_groups(rows, wanted)
    return {
        "groups": _summary(groups),
        "trajectories": {**_summary(trajectories), "status": _counted(row.status for row in trajectories)},
        "steps": _step_stats(_tallies(rows, wanted) if steps is None else map(_tally, steps)),
    }


def _summary(rows: list[TrajectoryRecord] | list[GroupRecord]) -> dict[str, Any]:  # JSON
    return {
        "total": len(rows),
        "ready": sum(row.ready for row in rows),
        "channels": _counted(row.channel or "unknown" for row in rows),
        "not_ready": _counted(reason for row in rows for reason in row.reasons),
    }


Tally = tuple[str, str, int, int, int, int, int]
"""channel, reasons; of how many steps, trainable ones, curated ones, prompt and response tokens."""


def _step_stats(tallies: Iterable[Tally]) -> dict[str, Any]:  # JSON
    channels: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    total = dict.fromkeys(("total", "trainable", "curated", "prompt_tokens", "response_tokens"), 0)
    for channel, why_not, *counts in tallies:
        channels[channel or "unknown"] += counts[0]
        reasons.update(dict.fromkeys(filter(None, why_not.split(",")), counts[0]))
        total = {name: before + more for (name, before), more in zip(total.items(), counts, strict=True)}
    return {**total, "channels": dict(sorted(channels.items())), "not_trainable": dict(sorted(reasons.items()))}


def _tallies(rows: PoolRows, wanted: PoolFilter) -> Iterator[Tally]:
    if wanted.text is not None:
        yield from map(_tally, find_steps(rows, wanted))
        return
    columns = "channel, reasons, count(*), sum(trainable), sum(curated), sum(prompt_length), sum(response_length)"
    found: Iterator[tuple[Any, ...]] = rows.store.tally(columns, "channel, reasons", *conditions(rows, wanted))
    for channel, *rest in found:
        yield (as_text(channel), *rest)


def _tally(step: StepRecord) -> Tally:
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

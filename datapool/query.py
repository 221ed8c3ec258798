"""Questions to a view of the pool: filters over steps, trajectories and groups, in pages, and counts over everything.

Invariant: a page is what comes after a key, in order of ids, so that pages neither overlap nor miss a row that stayed;
a field of a filter that is None asks nothing. Steps are filtered by the store, the others (far fewer) by a scan.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar

from datapool.rows import PoolRows, as_step
from datapool.store import Ids, Value, as_bytes, tag_list
from schemas.events import GroupRecord, StepRecord, TrajectoryRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Bounds are inclusive. Rewards: of a step its total, of a trajectory its return, of a group its mean."""

    channel: str | None = None
    group: str | None = None
    trajectory: str | None = None
    agent: str | None = None
    tags: tuple[str, ...] = ()
    """All of them; curated ones of a step count, too."""
    trainable: bool | None = None
    """Steps only."""
    ready: bool | None = None
    """Trajectories and groups only."""
    quality_min: float | None = None
    quality_max: float | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    version_min: int | None = None
    """Some token is of this version or a later one."""
    version_max: int | None = None
    """Some token is of this version or an earlier one."""
    text: str | None = None
    """Part of an id, of a tag, of a task or of a note, in any case."""


def trajectory_id(record: TrajectoryRecord) -> tuple[str, ...]:
    return record.group_id, record.trajectory_id


def group_id(record: GroupRecord) -> tuple[str, ...]:
    return (record.group_id,)


def find_steps(
    rows: PoolRows,
    wanted: Filter,
    after: tuple[str, ...] = (),
    limit: int | None = None,
    also: Callable[[StepRecord], bool] = lambda _: True,
) -> list[StepRecord]:
    """Steps that meet the filter and `also`, behind `after` (a step's ids), at most `limit`."""
    where, values = conditions(wanted)
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


def without_text(wanted: Filter) -> Filter:
    """The same filter, for who looks for the text elsewhere."""
    return replace(wanted, text=None)


def conditions(wanted: Filter) -> tuple[str, list[Value]]:
    """SQL over the columns of `datapool.store`, and its values. The text is not in it: it reads the record."""
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
        *(("instr(tags, ?) > 0", tag_list([tag])) for tag in wanted.tags),
    ]
    given = [(condition, value) for condition, value in asked if value is not None]
    return " AND ".join(condition for condition, _ in given) or "1", [value for _, value in given]


def find_trajectories(
    rows: PoolRows, wanted: Filter, after: tuple[str, ...] = (), limit: int | None = None
) -> list[TrajectoryRecord]:
    """Trajectories that meet the filter, behind `after` (group_id, trajectory_id)."""
    tests = _asked(
        (after or None, lambda row: trajectory_id(row) > after),
        (wanted.trajectory, lambda row: row.trajectory_id == wanted.trajectory),
    )
    tests += _tests(wanted, attrgetter("return_total"), _words_of_trajectory)
    return list(islice(_meeting(rows.trajectory_rows(), tests), limit))


def find_groups(
    rows: PoolRows, wanted: Filter, after: tuple[str, ...] = (), limit: int | None = None
) -> list[GroupRecord]:
    """Groups that meet the filter, whole or not, behind `after` (group_id,)."""
    tests = _asked(
        (after or None, lambda row: group_id(row) > after),
        (wanted.trajectory, lambda row: wanted.trajectory in {one.trajectory_id for one in row.members}),
    )
    tests += _tests(wanted, attrgetter("reward_mean"), _words_of_group)
    return list(islice(_meeting(rows.group_rows(), tests), limit))


Row = TypeVar("Row", TrajectoryRecord, GroupRecord)
Test = Callable[[Any], bool]  # Any: a TrajectoryRecord or a GroupRecord; mypy knows no row with both their fields


def _tests(
    wanted: Filter, reward: Callable[[Any], float | None], words: Callable[[Any], Iterable[str | None]]
) -> list[Test]:
    """What a filter asks of trajectories and groups alike, the cheap ones first: most rows fail one of them."""
    sought, tags = (wanted.text or "").lower(), frozenset(wanted.tags)
    return _asked(
        (wanted.group, lambda row: row.group_id == wanted.group),
        (wanted.channel, lambda row: row.channel == wanted.channel),
        (wanted.agent, lambda row: row.agent == wanted.agent),
        (wanted.ready, lambda row: row.ready == wanted.ready),
        (wanted.tags or None, lambda row: tags.issubset(row.tags)),
        (wanted.version_min, lambda row: _within(row.max_version, wanted.version_min, None)),
        (wanted.version_max, lambda row: _within(row.min_version, None, wanted.version_max)),
        (wanted.reward_min, lambda row: _within(reward(row), wanted.reward_min, None)),
        (wanted.reward_max, lambda row: _within(reward(row), None, wanted.reward_max)),
        (wanted.text, lambda row: _hold(words(row), sought)),
    )


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


def stats(rows: PoolRows) -> dict[str, Any]:  # JSON
    """Counts over the whole pool: steps and tokens by channel, states and reasons of all three kinds."""
    trajectories, groups = list(rows.trajectory_rows()), list(rows.group_rows())
    return {
        "groups": _summary(groups),
        "trajectories": {**_summary(trajectories), "status": _counted(row.status for row in trajectories)},
        "steps": _step_stats(rows),
    }


def _summary(rows: list[TrajectoryRecord] | list[GroupRecord]) -> dict[str, Any]:  # JSON
    return {
        "total": len(rows),
        "ready": sum(row.ready for row in rows),
        "channels": _counted(row.channel or "unknown" for row in rows),
        "not_ready": _counted(reason for row in rows for reason in row.reasons),
    }


def _step_stats(rows: PoolRows) -> dict[str, Any]:  # JSON
    columns = "channel, reasons, count(*), sum(trainable), sum(curated), sum(prompt_length), sum(response_length)"
    channels: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    total = dict.fromkeys(("total", "trainable", "curated", "prompt_tokens", "response_tokens"), 0)
    for channel, why_not, *counts in _numbers(rows.store.tally(columns, "channel, reasons")):
        channels[channel] += counts[0]
        reasons.update(dict.fromkeys(filter(None, why_not.split(",")), counts[0]))
        total = {name: before + more for (name, before), more in zip(total.items(), counts, strict=True)}
    return {**total, "channels": dict(sorted(channels.items())), "not_trainable": dict(sorted(reasons.items()))}


def _numbers(tallies: Iterator[tuple[Value, ...]]) -> Iterator[tuple[Any, ...]]:  # columns of several types
    for channel, *rest in tallies:
        yield (
            bytes(channel).decode("utf-8", "replace") or "unknown" if isinstance(channel, bytes) else "unknown",
            *rest,
        )


def _counted(names: Iterable[str]) -> Mapping[str, int]:
    return dict(sorted(Counter(names).items()))

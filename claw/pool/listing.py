"""`claw pool stats|steps|trajectories|groups`: pages of the pool's rows. It writes nothing."""

from collections.abc import Callable, Iterator
from contextlib import closing

from claw_r1.claw.answers import Answer
from claw_r1.claw.notice import notice
from claw_r1.claw.pool.options import PageOptions
from claw_r1.claw.pool.reading import open_pool
from claw_r1.consumers.pool.event_json import as_plain
from claw_r1.consumers.pool.listing import find, ids_of_key, stats_of, step_key_of
from claw_r1.datapool.batch.rewards import emptied, slot_text
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.records import PooledRow
from claw_r1.datapool.view.view import TOPICS
from claw_r1.eventlog.kafka.reader import FactLookup
from claw_r1.schemas.events import GroupRecord, StepRecord, TrajectoryRecord
from claw_r1.schemas.json_values import JsonDict
from claw_r1.schemas.topics import GROUPS, TRAJECTORIES


def show_stats(filters: PoolFilter, *, prefix: str) -> Answer:
    """Counts what the lists of this filter show."""
    with open_pool(prefix, group=filters.group) as pool, closing(FactLookup(pool.settings)) as facts:
        counts = pool.view.ask(lambda rows: stats_of(rows, filters, facts))
    return Answer(counts, _stats_text(counts))


def _stats_text(counts: JsonDict) -> Iterator[str]:
    for kind, numbers in counts.items():
        yield kind
        for name, value in numbers.items():
            text = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else value
            yield f"  {name:<16} {text if text != '' else '-'}"


def show_page(kind: str, filters: PoolFilter, page: PageOptions, *, prefix: str) -> Iterator[Answer]:
    """Yields one page and, as its last line, what the next one starts behind. Raises PoolRefusal for a bad key."""
    place = ids_of_key(kind, page.after)
    topics = TOPICS if kind == "steps" or filters.asks_steps else (TRAJECTORIES, GROUPS)
    with open_pool(prefix, group=filters.group, topics=topics) as pool, closing(FactLookup(pool.settings)) as facts:
        rows = pool.view.ask(lambda rows: find(kind, rows, filters, place, page.limit + 1, facts))
    for row in rows[: page.limit]:
        yield Answer(as_plain(row), LINES[kind](row))
    if not rows:
        notice(_empty(kind, filters, page.after))
    if len(rows) > page.limit:
        key = step_key_of(rows[page.limit - 1])
        yield Answer({"type": "More", "after": key}, f"more: --after {key}")


def _empty(kind: str, filters: PoolFilter, after: str | None) -> str:
    """Describes why a page has no row, and what to do."""
    if after is not None:
        return f"no {kind} come behind {after}: the page before was the last one"
    if filters != PoolFilter():
        return f"no {kind} of the pool meet the filter; `claw pool stats` without options counts what there is"
    return f"the pool has no {kind} yet: agents that call the gateway fill it, and `claw streams` has to run (`claw status`)"


def _versions(row: PooledRow) -> str:
    return "-" if row.min_version is None else f"{row.min_version}..{row.max_version}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _without_value(row: StepRecord | TrajectoryRecord) -> str:
    """Slots that were taken back, or given up."""
    slots = ", ".join(map(slot_text, emptied(row.rewards)))
    return f" ({slots})" if slots else ""


def _step_line(row: PooledRow) -> str:
    assert isinstance(row, StepRecord)  # by kind
    state = "trainable" if row.trainable else ", ".join(row.reasons)
    quality = _number(row.curation.quality if row.curation else None)
    scores = row.curation.scores if row.curation else {}
    if scores:
        quality += f" ({', '.join(f'{scorer} {_number(score)}' for scorer, score in scores.items())})"
    return (
        f"{row.group_id}/{row.trajectory_id}/{row.call_id}  {row.prompt_length}+{row.response_length} tokens  "
        f"versions {_versions(row)}  reward {_number(row.reward_total)}{_without_value(row)}  quality {quality}  {state}"
    )


def _trajectory_line(row: PooledRow) -> str:
    assert isinstance(row, TrajectoryRecord)  # by kind
    state = "ready" if row.ready else ", ".join(row.reasons)
    return (
        f"{row.group_id}/{row.trajectory_id}  {row.status}  {len(row.calls) + row.calls_left_out} calls  versions {_versions(row)}  "
        f"return {_number(row.return_total)}{_without_value(row)}  {state}"
    )


def _group_line(row: PooledRow) -> str:
    assert isinstance(row, GroupRecord)  # by kind
    state = "ready" if row.ready else ", ".join(row.reasons)
    ready = sum(member.ready for member in row.members)
    return (
        f"{row.group_id}  {row.channel or '-'}  {ready}/{row.expected_size or len(row.members) + row.members_left_out} ready  "
        f"versions {_versions(row)}  mean {_number(row.reward_mean)}  {state}"
    )


LINES: dict[str, Callable[[PooledRow], str]] = {
    "steps": _step_line,
    "trajectories": _trajectory_line,
    "groups": _group_line,
}

"""`claw pool stats|steps|trajectories|groups`: pages of the pool's rows. It writes nothing."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import orjson

from claw.errors import CannotRun
from claw.pool.options import PageOptions
from claw.pool.reading import open_pool
from claw.pool.text import Conversations
from claw.show.rendering import as_plain
from datapool.view import query
from datapool.view.query import PoolFilter
from datapool.view.rows import PoolRows
from datapool.view.view import TOPICS
from eventlog.kafka.reader import FactLookup
from eventlog.protocols import Lookup
from schemas.events import GroupRecord, StepRecord, TrajectoryRecord
from schemas.keys import parts, step_key
from schemas.topics import GROUPS, TRAJECTORIES

Row = StepRecord | TrajectoryRecord | GroupRecord


def show_stats(wanted: PoolFilter, *, prefix: str, as_json: bool) -> int:
    """Prints counts over what the lists of this filter show."""
    with open_pool(prefix, group=wanted.group) as pool, closing(FactLookup(pool.settings)) as facts:
        counted = pool.view.ask(lambda rows: stats_of(rows, wanted, facts))
    if as_json:
        print(orjson.dumps(counted).decode())
        return 0
    for kind, numbers in counted.items():
        print(kind)
        for name, value in numbers.items():
            shown = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else value
            print(f"  {name:<16} {shown if shown != '' else '-'}")
    return 0


def stats_of(rows: PoolRows, wanted: PoolFilter, facts: Lookup) -> dict[str, Any]:  # JSON
    """Counts; a text is sought in the conversations of steps, too."""
    steps = None if wanted.text is None else find_steps(rows, wanted, (), None, facts)
    return query.stats(rows, wanted, steps)


def show_page(kind: str, wanted: PoolFilter, page: PageOptions, *, prefix: str, as_json: bool) -> int:
    """Prints one page and, on its last line, what the next one starts behind. Raises CannotRun for a bad key."""
    place = _place(kind, page.after)
    topics = TOPICS if kind == "steps" or query.asks_steps(wanted) else (TRAJECTORIES, GROUPS)
    with open_pool(prefix, group=wanted.group, topics=topics) as pool, closing(FactLookup(pool.settings)) as facts:
        rows = pool.view.ask(lambda rows: find(kind, rows, wanted, place, page.limit + 1, facts))
    for row in rows[: page.limit]:
        print(orjson.dumps(as_plain(row)).decode() if as_json else LINES[kind](row))
    if len(rows) > page.limit:
        key = step_key_of(rows[page.limit - 1])
        print(orjson.dumps({"type": "More", "after": key}).decode() if as_json else f"more: --after {key}")
    return 0


def find(
    kind: str, rows: PoolRows, wanted: PoolFilter, after: tuple[str, ...], limit: int | None, facts: Lookup
) -> list[Row]:
    """Rows of one kind that meet the filter. Text is sought in the conversations of steps, too."""
    if kind == "trajectories":
        return list(query.find_trajectories(rows, wanted, after, limit))
    if kind == "groups":
        return list(query.find_groups(rows, wanted, after, limit))
    return list(find_steps(rows, wanted, after, limit, facts))


def find_steps(
    rows: PoolRows, wanted: PoolFilter, after: tuple[str, ...], limit: int | None, facts: Lookup
) -> list[StepRecord]:
    """Steps that meet the filter; a text is sought in their conversations, too."""
    if wanted.text is None:
        return query.find_steps(rows, wanted, after, limit)
    text, conversations = wanted.text, Conversations(rows, facts)
    return query.find_steps(rows, query.without_text(wanted), after, limit, lambda step: conversations.say(step, text))


def step_key_of(row: Row) -> str:
    """A row's key as `--after` takes it."""
    ids = [getattr(row, name) for name in ("group_id", "trajectory_id", "call_id") if hasattr(row, name)]
    return "/".join(step_key(one, "", "").decode().split("/")[0] for one in ids)


def _place(kind: str, after: str | None) -> tuple[str, ...]:
    if after is None:
        return ()
    ids = parts(after.encode())
    wanted = {"steps": 3, "trajectories": 2, "groups": 1}[kind]
    if len(ids) != wanted:
        raise CannotRun(f"--after takes a key of {wanted} parts for {kind}, as the page before said it; not {after!r}")
    return ids


def _versions(row: Row) -> str:
    return "-" if row.min_version is None else f"{row.min_version}..{row.max_version}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _step_line(row: Row) -> str:
    assert isinstance(row, StepRecord)  # by kind
    state = "trainable" if row.trainable else ", ".join(row.reasons)
    quality = _number(row.curation.quality if row.curation else None)
    scores = row.curation.scores if row.curation else {}
    if scores:
        quality += f" ({', '.join(f'{scorer} {_number(score)}' for scorer, score in scores.items())})"
    return (
        f"{row.group_id}/{row.trajectory_id}/{row.call_id}  {row.prompt_length}+{row.response_length} tokens  "
        f"versions {_versions(row)}  reward {_number(row.reward_total)}  quality {quality}  {state}"
    )


def _trajectory_line(row: Row) -> str:
    assert isinstance(row, TrajectoryRecord)  # by kind
    state = "ready" if row.ready else ", ".join(row.reasons)
    return (
        f"{row.group_id}/{row.trajectory_id}  {row.status}  {len(row.calls) + row.calls_left_out} calls  versions {_versions(row)}  "
        f"return {_number(row.return_total)}  {state}"
    )


def _group_line(row: Row) -> str:
    assert isinstance(row, GroupRecord)  # by kind
    state = "ready" if row.ready else ", ".join(row.reasons)
    ready = sum(member.ready for member in row.members)
    return (
        f"{row.group_id}  {row.channel or '-'}  {ready}/{row.expected_size or len(row.members) + row.members_left_out} ready  "
        f"versions {_versions(row)}  mean {_number(row.reward_mean)}  {state}"
    )


LINES: dict[str, Callable[[Row], str]] = {"steps": _step_line, "trajectories": _trajectory_line, "groups": _group_line}

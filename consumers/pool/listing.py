"""Pages and counts of the pool's rows; a text is sought in whole conversations of steps, too."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from claw_r1.consumers.pool.errors import PoolRefusal
from claw_r1.consumers.pool.text import Conversations
from claw_r1.datapool.view.listing import query
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.records import PooledRow
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.eventlog.protocols import Lookup
from claw_r1.schemas.events import StepRecord
from claw_r1.schemas.keys import parts, step_key


def stats_of(rows: PoolRows, filters: PoolFilter, facts: Lookup) -> dict[str, Any]:  # JSON
    """Counts; a text is sought in the conversations of steps, too."""
    steps = None if filters.text is None else find_steps_and_speech(rows, filters, (), None, facts)
    return query.stats(rows, filters, steps)


def find(
    kind: str, rows: PoolRows, filters: PoolFilter, after: tuple[str, ...], limit: int | None, facts: Lookup
) -> list[PooledRow]:
    """Rows of one kind that meet the filter. Text is sought in the conversations of steps, too."""
    if kind == "trajectories":
        return list(query.find_trajectories(rows, filters, after, limit))
    if kind == "groups":
        return list(query.find_groups(rows, filters, after, limit))
    return list(find_steps_and_speech(rows, filters, after, limit, facts))


def find_steps_and_speech(
    rows: PoolRows, filters: PoolFilter, after: tuple[str, ...], limit: int | None, facts: Lookup
) -> list[StepRecord]:
    """Steps that meet the filter; a text is sought in their conversations, too."""
    if filters.text is None:
        return query.find_steps(rows, filters, after, limit)
    text, conversations = filters.text, Conversations(partial(query.steps_of, rows), facts)
    return query.find_steps(rows, replace(filters, text=None), after, limit, lambda step: conversations.say(step, text))


def step_key_of(row: PooledRow) -> str:
    """A row's key as `--after` takes it."""
    ids = [getattr(row, name) for name in ("group_id", "trajectory_id", "call_id") if hasattr(row, name)]
    return key_text(ids)


def key_text(ids: Iterable[str]) -> str:
    """Returns the key like `step_key_of`, from a row's ids."""
    return "/".join(step_key(part, "", "").decode().split("/")[0] for part in ids)


def ids_of_key(kind: str, after: str | None) -> tuple[str, ...]:
    """The ids that a page starts behind, of a key of `step_key_of`. Raises PoolRefusal."""
    if after is None:
        return ()
    ids = parts(after.encode())
    length = {"steps": 3, "trajectories": 2, "groups": 1}[kind]
    if len(ids) != length:
        raise PoolRefusal(
            f"--after takes a key of {length} parts for {kind}, as the last line of the page before names it, not {after!r}"
        )
    return ids

"""Queues made a moment ago, so that neither a poll nor a judgement reads the whole pool again.

Invariant: people's feedback always counts at once; the pool's content may be older by `SHARE` times the
time of reading it.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from claw_r1.consumers.dashboard.feedback.bodies import QueueQuery
from claw_r1.consumers.dashboard.feedback.queue import Silent, pair_items, silent, single_items
from claw_r1.datapool.view.listing.pool_filter import PoolFilter
from claw_r1.datapool.view.listing.query import find_trajectories, trajectory_id
from claw_r1.datapool.view.listing.table import Floats
from claw_r1.datapool.view.rows import PoolRows
from claw_r1.datapool.view.view import PoolView
from claw_r1.schemas.events import TrajectoryRecord
from claw_r1.schemas.http import Channel

SHARE = 20
"""At most one part in so many of a core goes into reading the pool for one queue."""
QUEUES_MAX = 16
PAGE = 500
"""Trajectories that are read at once: some ten milliseconds."""


@dataclass(frozen=True, slots=True)
class KeptQueue:
    """A queue without feedback, and the time of its use."""

    queue: Silent
    changes: int
    """The pool's change count at the time of reading."""
    until_s: float


class Queues:
    """The latest queues by request. Safe from any thread."""

    def __init__(self, pool: PoolView) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, KeptQueue] = OrderedDict()

    def get(self, query: QueueQuery) -> KeptQueue:
        """Raises ValueError for a filter that is none, ViewFailed."""
        pool_filter = query.filter()
        name = query.model_dump_json(exclude={"limit", "overlap", "people"})
        with self._lock:
            kept = self._kept.get(name)
            stale = kept is None or (kept.changes != self._pool.changes and kept.until_s < time.monotonic())
            if kept is None or stale:
                began, changes = time.monotonic(), self._pool.changes
                trained_only = pool_filter.channel is None and not query.evaluation
                every = self._rows(pool_filter)
                rows = (each for each in every if not trained_only or each[0].channel != Channel.VALIDATION)
                items = pair_items(row for row, _ in rows) if query.mode == "pair" else single_items(rows)
                queue = silent(items, query.order, query.seed)
                now = time.monotonic()
                kept = self._kept[name] = KeptQueue(queue, changes, now + SHARE * (now - began))
            self._kept.move_to_end(name)
            while len(self._kept) > QUEUES_MAX:
                self._kept.popitem(last=False)
        return kept

    def newer_in_s(self, kept: KeptQueue) -> float | None:
        """Returns when the pool will be read anew for it; None: it shows the pool as it is."""
        return None if kept.changes == self._pool.changes else max(0.0, kept.until_s - time.monotonic())

    def _rows(self, pool_filter: PoolFilter) -> Iterator[tuple[TrajectoryRecord, float]]:
        """In order of ids, each with its scorers' distance at the first read; and in pages: each row is
        decoded, so other requests wait for one page."""
        apart = self._pool.ask(_scorers_apart)
        after: tuple[str, ...] = ()
        while True:
            page = self._pool.ask(partial(_page, pool_filter, after))
            yield from ((row, float(apart[number]) if number < len(apart) else 0.0) for number, row in page)
            if len(page) < PAGE:
                return
            after = trajectory_id(page[-1][1])


def _scorers_apart(rows: PoolRows) -> Floats:
    """By number of a trajectory."""
    return np.nan_to_num(rows.tables.codes("trajectories", "scorers_apart"))


def _page(pool_filter: PoolFilter, after: tuple[str, ...], rows: PoolRows) -> list[tuple[int, TrajectoryRecord]]:
    """The next rows, with their numbers."""
    page = find_trajectories(rows, pool_filter, after, PAGE)
    return list(zip(rows.tables.numbers("trajectories", [*map(trajectory_id, page)]), page, strict=True))

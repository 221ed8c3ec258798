"""Selecting again and again while rows come: of one moment, and without judging what did not change."""

import threading
from collections.abc import Iterable, Iterator

import pytest

from datapool.batch_spec import BatchSpec
from datapool.plan import Selection, select
from datapool.rows import PoolRows
from datapool.view import TOPICS, PoolView
from eventlog.memory import MemoryLog
from eventlog.records import Outgoing
from schemas.events import Event
from schemas.topics import Topic
from tests import facts
from tests.trainer.pooled import RUN, SETTINGS, group, rows_of

NAMES = {topic.name: topic for topic in TOPICS}
Written = tuple[str, bytes, bytes | None]
WEIGHTED = BatchSpec(groups_per_batch=1, group_size=2, reward_weights={"*": 1.0})
"""Under weights a return is added up from the rewards of steps, so that it shows whose steps they are."""


def written(history: Iterable[Event]) -> list[Written]:
    """Rows in the order in which the streams write them, one flush per fact."""
    log = MemoryLog(SETTINGS)
    return [row for _, *row in rows_of(history, lambda item: log.append([item])[0])]  # type: ignore[misc]  # three are left


def changing(changes: int) -> list[Event]:
    """A group of which a step is judged again and again."""
    again = (facts.reward("g", "t0", float(n), call_id="c0", revision=n, name="style") for n in range(1, changes))
    return [*group("g", [0.0, 1.0]), *again]


def of_one_moment(selection: Selection) -> bool:
    """Whether each member's return, which its steps say, is that of its row."""
    members = [member for one in selection.chosen for member in one.members]
    return all(member.judged is not None and member.judged.total == member.record.return_total for member in members)


class Restless:
    """A pool that takes one more row in before each question."""

    def __init__(self, rows: PoolRows, coming: Iterator[Written]) -> None:
        self._rows = rows
        self._coming = coming
        self.over = False

    def __getattr__(self, name: str) -> object:
        row = next(self._coming, None)
        self.over = row is None
        if row is not None:
            self._rows.apply(*row)
        return getattr(self._rows, name)


def test_what_is_planned_is_of_one_moment() -> None:
    """Rows that come between two questions of a selection never put a return beside another return's row."""
    before, after = len(written(changing(1))), written(changing(60))
    rows = PoolRows()
    for row in after[:before]:
        rows.apply(*row)
    restless = Restless(rows, iter(after[before:]))
    planned = 0
    while not restless.over:
        selection = select(restless, WEIGHTED, 0, RUN, ())  # type: ignore[arg-type]  # whatever selection asks
        planned += len(selection.chosen)
        assert of_one_moment(selection)
    assert select(rows, WEIGHTED, 0, RUN, ()).complete


def test_a_view_that_is_written_to_gives_members_of_one_moment() -> None:
    """A follower's thread applies rows while another one selects."""
    log, rows = MemoryLog(SETTINGS), written(changing(400))
    view = PoolView(SETTINGS, open_reader=lambda: log.reader(TOPICS))
    view.start()
    stop = threading.Event()

    def write() -> None:
        for topic, key, value in rows:
            log.append([Outgoing(topic=NAMES[topic], key=key, value=value)])
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not stop.is_set():
            assert of_one_moment(select(view, WEIGHTED, 0, RUN, ()))
        view.wait_caught_up(10)
        assert select(view, WEIGHTED, 0, RUN, ()).complete
    finally:
        writer.join()
        view.stop()

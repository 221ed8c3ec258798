"""How far a view has read is told from the first second, and answers are there before the end."""

import threading

from claw_r1.datapool.view.listing.pages import count
from claw_r1.datapool.view.view import TOPICS, PoolView
from claw_r1.eventlog.errors import BrokerUnreachable
from claw_r1.eventlog.memory import MemoryLog
from tests.trainer.pooled import SETTINGS, group, write_pool


class Halting:
    """A reader that stops before its third poll until it may go on; its broker may be away."""

    def __init__(self, reader) -> None:
        self.reader, self.polls, self.may_go_on, self.halted = reader, 0, threading.Event(), threading.Event()
        self.away = False

    def poll(self, timeout_s, records_max=500):
        self.polls += 1
        if self.polls == 3:
            self.halted.set()
            assert self.may_go_on.wait(10)
        return self.reader.poll(timeout_s, 5)

    def end_offsets(self):
        if self.away:
            raise BrokerUnreachable("away")
        return self.reader.end_offsets()

    def __getattr__(self, name):
        return getattr(self.reader, name)


def started(log):
    reader = Halting(log.reader(TOPICS))
    view = PoolView(SETTINGS, listed=True, open_reader=lambda: reader)
    view.start()
    return view, reader


def test_a_view_says_how_far_it_is_and_answers_meanwhile():
    """Ten rows of a longer log are answered from; at the end it says that it is there."""
    log = MemoryLog(SETTINGS)
    write_pool(log, [*group("a", [0.0, 1.0]), *group("b", [0.0, 1.0])])
    view, reader = started(log)
    try:
        assert reader.halted.wait(10)
        half = view.progress()
        assert (half.rows, sum(half.offsets.values()), half.caught_up) == (10, 10, False)
        assert sum(half.ends.values()) > 20
        assert view.ask(lambda rows: count(rows, "steps")) > 0
        reader.may_go_on.set()
        view.wait_caught_up(10)
        everything = until_caught_up(view)
        assert everything.rows == sum(everything.ends.values()) == sum(everything.offsets.values())
        assert {topic for topic, _ in everything.ends} == {SETTINGS.catalogue().name(topic) for topic in TOPICS}
        assert view.ask(lambda rows: count(rows, "groups")) == 2
    finally:
        reader.may_go_on.set()
        view.stop()


def test_a_look_outlives_a_broker_that_is_away():
    """Reading outlives a broker's restart, so asking how far it is does."""
    log = MemoryLog(SETTINGS)
    write_pool(log, group("a", [0.0, 1.0]))
    view, reader = started(log)
    try:
        reader.may_go_on.set()
        view.wait_caught_up(10)
        ends = until_caught_up(view).ends
        reader.away, polls = True, reader.polls
        while reader.polls < polls + 3:
            assert view.progress().ends == ends
        assert view.ask(lambda rows: count(rows, "groups")) == 1
    finally:
        view.stop()


def test_a_row_that_came_is_seen_to_be_missing():
    """What is written after it was caught up makes it lag until it is read."""
    log = MemoryLog(SETTINGS)
    view, reader = started(log)
    try:
        reader.may_go_on.set()
        until_caught_up(view)
        write_pool(log, group("a", [0.0, 1.0]))
        while (at := view.progress()).rows < 10:
            pass
        assert until_caught_up(view).rows >= at.rows > 0
    finally:
        view.stop()


def until_caught_up(view):
    while not (progress := view.progress()).caught_up:
        assert view._follower.error is None
    return progress

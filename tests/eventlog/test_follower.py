"""Followers and views, on both logs."""

import contextlib
import threading
import time
from collections.abc import Callable

import pytest

from claw_r1.eventlog.errors import BrokerUnreachable, LogError
from claw_r1.eventlog.follower import Follower
from claw_r1.eventlog.protocols import Producer
from claw_r1.eventlog.records import Place, Record
from claw_r1.schemas.topics import CALLS, GROUPS
from tests.eventlog.samples import AnyLog, item, names

WAIT_S = 15


def test_caught_up_means_everything_before_the_call_was_handed_over(log: AnyLog, producer: Producer) -> None:
    """After wait_caught_up each record that was committed before it has been through on_record, however slow that is."""
    seen: list[Record] = []

    def take_slowly(record: Record) -> None:
        time.sleep(0.05)
        seen.append(record)

    follower = Follower(log.reader([CALLS]), take_slowly)
    follower.start()
    for batch in range(3):
        for future in [producer.produce(item(f"{batch}.{n}")) for n in range(5)]:
            future.result(WAIT_S)
        follower.wait_caught_up(WAIT_S)
        assert names(seen) == [f"{b}.{n}" for b in range(batch + 1) for n in range(5)]
    follower.stop()
    assert follower.error is None


def test_many_may_wait_at_once(log: AnyLog, producer: Producer) -> None:
    """wait_caught_up is safe from several threads; each returns only when the follower is far enough for it."""
    seen: list[Record] = []
    follower = Follower(log.reader([CALLS]), seen.append)
    follower.start()
    counts: list[bool] = []

    def publish_and_wait(name: str) -> None:
        producer.produce(item(name, key=name)).result(WAIT_S)
        follower.wait_caught_up(WAIT_S)
        counts.append(name in names(list(seen)))

    threads = [threading.Thread(target=publish_and_wait, args=(str(n),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    follower.stop()
    assert counts == [True] * 6


def test_an_exception_in_on_record_ends_the_follower_and_is_told(log: AnyLog, producer: Producer) -> None:
    """The record that failed is not skipped: the follower stops there, sets error, calls on_error, fails who waits."""
    seen: list[str] = []
    told = threading.Event()

    def explode_at_b(record: Record) -> None:
        if names([record]) == ["b"]:
            raise ValueError("b")
        seen.extend(names([record]))

    for name in "abc":
        producer.produce(item(name)).result(WAIT_S)
    follower = Follower(log.reader([CALLS]), explode_at_b, lambda _: told.set())
    follower.start()
    assert told.wait(WAIT_S)
    assert isinstance(follower.error, ValueError)
    with pytest.raises(LogError, match="ended: b"):
        follower.wait_caught_up(WAIT_S)
    assert seen == ["a"]


def test_a_question_for_the_end_that_no_broker_answers_is_asked_again(producer: Producer, log: AnyLog) -> None:
    """An outage ends no follower: what reads rides it out, and so does the question where the log ends."""

    class Outage:
        """The log's reader, whose first question for the end finds no broker."""

        def __init__(self) -> None:
            self.refusals = 1
            self._reader = log.reader([CALLS])
            self.poll, self.positions, self.close = self._reader.poll, self._reader.positions, self._reader.close
            self.read_to_end, self.at_end = self._reader.read_to_end, self._reader.at_end

        def end_offsets(self) -> dict[Place, int]:
            if self.refusals:
                self.refusals -= 1
                raise BrokerUnreachable("no broker answers")
            return self._reader.end_offsets()

    producer.produce(item("a")).result(WAIT_S)
    seen: list[Record] = []
    follower = Follower(reader := Outage(), seen.append)
    follower.start()
    follower.wait_caught_up(WAIT_S)
    follower.stop()
    assert (names(seen), reader.refusals, follower.error) == (["a"], 0, None)


def test_a_stopped_follower_leaves_no_thread(log: AnyLog) -> None:
    """stop ends the thread, twice is no error, and a follower may stop itself."""
    before = set(threading.enumerate())
    follower = Follower(log.reader([CALLS]), print)
    follower.start()
    follower.stop()
    follower.stop()
    assert set(threading.enumerate()) <= before


def test_a_follower_goes_on_while_transactions_come(log: AnyLog, stack: contextlib.ExitStack) -> None:
    """Records committed later appear without anybody asking, and markers at the end do not stop the wait."""
    owner = stack.enter_context(contextlib.closing(log.transactions("pool-0")))
    owner.open()
    seen: list[Record] = []
    follower = Follower(log.reader([GROUPS]), seen.append)
    follower.start()
    follower.wait_caught_up(WAIT_S)
    owner.commit([item("a", topic=GROUPS)])
    poll_until(lambda: bool(seen))
    follower.wait_caught_up(WAIT_S)
    follower.stop()
    assert names(seen) == ["a"]


def poll_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

"""A member that reads up to the ends and no further, under the one loop, on the log's memory twin."""

import threading

from claw_r1.consumers.rewards.rescoring.bounded_log import BoundedMembership
from claw_r1.eventlog.consume import ConsumeLimits, ConsumerLoop
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS
from tests import facts

GROUP = "claw.rewards.rule.call.g1"
LIMITS = ConsumeLimits(records_max=2, commit_interval_s=0.1)


class Bounded:
    """A memory log as `BoundedLog` is one of Kafka's."""

    def __init__(self, log, ends, stop):
        self._log, self._ends, self._stop = log, ends, stop
        self.passed = []

    def producer(self):
        return self._log.producer()

    def committed(self):
        offsets = self._log.committed_offsets(GROUP, [CALLS], [partition for _, partition in self._ends])
        return {place: at for place, at in offsets.items() if at is not None}

    def membership(self, topics, group_id, **options):
        member = self._log.membership(topics, group_id, **options)
        return BoundedMembership(member, self._ends, self._stop, self.committed, self.passed.append)


def write(log, count, partition=0):
    for number in range(count):
        log.append([Outgoing.of(CALLS, b"g", facts.call("g", "t", f"c{number}"), partition)])


def run(log, ends):
    """Offsets that were worked on, until the loop ended by itself; and what the group committed."""
    stop, offsets = threading.Event(), []
    bounded = Bounded(log, ends, stop)
    timer = threading.Timer(20, stop.set)
    timer.start()

    def work(record):
        offsets.append((record.partition, record.offset))
        return ()

    loop = ConsumerLoop(bounded, [CALLS], GROUP, work, limits=LIMITS)
    loop.run(stop)
    loop.close()
    assert timer.is_alive(), "it did not end at the ends"
    timer.cancel()
    return offsets, bounded.committed()


def test_it_ends_at_the_ends_and_goes_on_there():
    """Records beyond the end are neither worked on nor committed, although the loop's poll may have seen them."""
    log = MemoryLog(LogSettings(partitions=1))
    topic = log.settings.catalogue().name(CALLS)
    write(log, 7)
    assert run(log, {(topic, 0): 3}) == ([(0, 0), (0, 1), (0, 2)], {(topic, 0): 3})
    assert run(log, {(topic, 0): 7}) == ([(0, 3), (0, 4), (0, 5), (0, 6)], {(topic, 0): 7})
    assert run(log, {(topic, 0): 7})[0] == []


def test_an_empty_partition_is_at_its_end():
    """Nothing is waited for where nothing was written."""
    log = MemoryLog(LogSettings(partitions=3))
    topic = log.settings.catalogue().name(CALLS)
    write(log, 2, partition=1)
    offsets, committed = run(log, {(topic, 0): 0, (topic, 1): 2, (topic, 2): 0})
    assert offsets == [(1, 0), (1, 1)]
    assert committed[topic, 1] == 2


def test_two_members_end_when_both_are_done():
    """Each takes its partitions, and waits for what the other committed."""
    log = MemoryLog(LogSettings(partitions=2))
    topic = log.settings.catalogue().name(CALLS)
    for partition in (0, 1):
        write(log, 40, partition)
    ends = {(topic, 0): 40, (topic, 1): 40}
    results = []
    threads = [threading.Thread(target=lambda: results.append(run(log, ends)[0])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(25)
    both = [offset for result in results for offset in result]
    assert len(results) == 2
    assert set(both) == {(partition, offset) for partition in (0, 1) for offset in range(40)}

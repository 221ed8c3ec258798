"""Copies of partitions that others own: which ones a worker holds, that a copy read on is the pool, and who takes it over."""

import random
import signal
import urllib.request

import pytest

from claw_r1.claw.local.ports import free_ports
from claw_r1.datapool import FOLD_VERSION
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.events import StreamPosition
from claw_r1.schemas.topics import CALLS, GROUPS, POSITIONS, REWARDS, STEPS, TRAJECTORIES
from claw_r1.streams.cold_store import SqliteColdStore
from claw_r1.streams.errors import ExitCode
from claw_r1.streams.recovery import recover
from claw_r1.streams.standby import PoolCopy, Standby, beside, read_on
from tests import facts
from tests.streams import pool


def ranges(partitions, members):
    """As aiokafka's range assignor gives them."""
    each, rest = divmod(partitions, members)
    sizes = [each + (member < rest) for member in range(members)]
    return [set(range(sum(sizes[:member]), sum(sizes[: member + 1]))) for member in range(members)]


def test_whoever_leaves_each_partition_that_a_worker_gets_is_its_own_or_copied():
    """Members keep their order, so a worker's place stays or moves up by one."""
    for partitions in range(1, 40):
        for members in range(2, partitions + 3):
            after = ranges(partitions, members - 1)
            for place, own in enumerate(ranges(partitions, members)):
                for later in {place, place - 1} & set(range(members - 1)):
                    assert after[later] <= own | beside(own, partitions), (partitions, members, place)
    assert beside(range(6, 9), 100) == {2, 3, 4, 5, 9, 10, 11, 12}, "a part of what there is, where there are many"


def rows(copies):
    return {
        number: {topic.name: sorted(copy.store.topic(topic.name)) for topic in (STEPS, TRAJECTORIES, GROUPS, POSITIONS)}
        for number, copy in copies.items()
    }


@pytest.mark.kafka
@pytest.mark.slow
def test_a_copy_that_is_read_on_is_the_pool(log_settings, start):
    """Whenever it was begun, given out and gone on with, with rows that are written again and rows that are erased."""
    dice, numbers = random.Random(3), range(log_settings.partitions)
    worker, standby = start(), Standby(log_settings)
    for number in range(4):
        pool.publish(log_settings, map(pool.outgoing, pool.load(groups=6, members=2, prefix=f"g{number}-")))
        gone = [facts.evicted_group(f"g{number}-{group}") for group in range(3)]
        standby.hold(dice.sample(numbers, dice.randint(1, len(numbers))) if number < 3 else numbers)
        pool.publish(log_settings, map(pool.outgoing, gone))
        standby.wait_caught_up(60)
    pool.wait_for_oracle(log_settings)
    assert worker.stop() == ExitCode.STOPPED
    standby.wait_caught_up(60)
    assert standby.copied == len(numbers)
    copies, cold = standby.take(numbers), {number: PoolCopy() for number in numbers}
    assert (copies.keys(), standby.copied) == (set(numbers), 0)
    before = {number: dict(copy.read) for number, copy in copies.items()}
    for each in (copies, cold):
        read_on(log_settings, each)
    assert {number: copy.read for number, copy in copies.items()} == before, "all of it had been copied"
    assert rows(copies) == rows(cold)
    assert any(rows(copies)[number]["datapool.steps"] for number in numbers)
    warm, again = recover(log_settings, numbers, copies), recover(log_settings, numbers)
    names = [log_settings.catalogue().name(topic) for topic in (CALLS, REWARDS)]
    at = [[[states[number].expected(name) for name in names] for number in numbers] for states in (warm, again)]
    assert at[0] == at[1]
    assert sum(map(sum, at[0])) > 0


@pytest.mark.kafka
@pytest.mark.slow
def test_a_worker_whose_neighbour_is_killed_goes_on_from_its_copies(log_settings, start):
    """All that it opens then had been copied; what was folded before and after is what the oracle says."""
    (port,) = free_ports(1)
    owner = start()
    pool.wait_for("its share", lambda: owner.said("streams_assigned"))
    pool.publish(log_settings, map(pool.outgoing, pool.load(prefix="before")))
    pool.wait_for_oracle(log_settings)
    second = start(CLAW_STREAMS_STANDBY="1", CLAW_STREAMS_METRICS_PORT=str(port))
    pool.wait_for("its share", lambda: second.said("streams_assigned"))
    others = log_settings.partitions - len(second.said("streams_assigned")[-1]["opened"])
    pool.wait_for("its copies", lambda: f"claw_streams_standby {others}.0" in metrics(port))
    taken = len(second.said("streams_assigned"))
    owner.signal(signal.SIGKILL)
    owner.wait()
    pool.publish(log_settings, map(pool.outgoing, pool.load(prefix="after")))
    pool.wait_for("the rest", lambda: len(second.said("streams_assigned")) > taken)
    last = second.said("streams_assigned")[-1]
    assert len(last["from_copies"]) == others
    assert set(last["from_copies"]) <= set(last["opened"])
    pool.whole(log_settings)
    assert second.stop() == ExitCode.STOPPED, second.log()


def metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        return reply.read().decode()


@pytest.mark.kafka
def test_a_takeover_of_one_partition_leaves_the_other_copies(log_settings):
    """Each rebalance would read all of them anew."""
    standby = Standby(log_settings)
    position = StreamPosition(partition=0, offsets={}, fold_version=FOLD_VERSION, updated_at_us=0)
    pool.publish(log_settings, [Outgoing.of(POSITIONS, b"0", position, number) for number in (0, 1)])
    standby.hold([0, 1])
    standby.wait_caught_up(60)
    kept = standby._copies[1]
    assert standby.take([0]).keys() == {0}
    standby.hold([1])
    assert standby._copies == {1: kept}
    assert standby.copied == 1
    standby.hold(())


@pytest.mark.kafka
def test_copies_of_a_thread_that_broke_off_are_taken_by_nobody(log_settings, monkeypatch):
    """Rows may have been erased since, and after a week nobody would tell: all is read from the beginning."""
    standby = Standby(log_settings)
    standby.hold([0])
    standby.wait_caught_up(60)
    assert standby.is_reading
    monkeypatch.setattr(SqliteColdStore, "write", broken)
    monkeypatch.setattr("claw_r1.streams.standby.CHUNK_ROWS", 1)
    position = StreamPosition(partition=0, offsets={}, fold_version=FOLD_VERSION, updated_at_us=0)
    pool.publish(log_settings, [Outgoing.of(POSITIONS, b"0", position, 0)])
    pool.wait_for("its end", lambda: not standby.is_reading)
    assert standby.copied == 0
    assert standby.take([0]) == {}
    standby.hold(())
    assert standby.is_reading, "of nothing"


def broken(*_):
    raise OSError("No space left on device")

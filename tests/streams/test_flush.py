"""When a worker writes what it folded, and what it acknowledges."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from claw_r1.eventlog.settings import LogSettings
from claw_r1.streams.cold_store import SqliteColdStore
from claw_r1.streams.errors import ExitCode
from claw_r1.streams.flush import Flusher, flush_due
from claw_r1.streams.metrics import StreamsMetrics
from claw_r1.streams.ownership import OwnedPartition
from claw_r1.streams.partition.state import PartitionState
from claw_r1.streams.settings import StreamsSettings
from claw_r1.streams.standby import PoolCopy
from claw_r1.streams.worker import StreamsWorker
from tests import facts
from tests.streams.partition.test_state import record


@pytest.mark.parametrize(
    ("fetched", "since_s", "waits", "due"),
    [
        (0, 0.0, False, True),
        (1, 0.0, False, False),
        (4096, 1.9, False, False),
        (1, 2.0, False, True),
        (0, 0.2, True, False),
        (0, 0.25, True, True),
        (1, 0.25, True, False),
    ],
)
def test_a_flush_waits_while_facts_wait_and_never_for_long(fetched, since_s, waits, due):
    """An idle worker writes at every interval; one that lags gathers more, up to `flush_behind_s`, and one whose groups all wait
    for members, up to `flush_waiting_s`."""
    assert flush_due(fetched, since_s, StreamsSettings(), waits=waits) is due


class Producer:
    """A transactional producer that remembers, or fails."""

    def __init__(self, failure=None):
        self.batches = []
        self._failure = failure

    def commit(self, batch):
        if self._failure is not None:
            raise self._failure
        self.batches.append(batch)


class FaustEvent:
    """An event as Faust delivers it."""

    def __init__(self, fact, offset, generation=1):
        self.record = record(fact, offset)
        fields = {name: getattr(self.record, name) for name in self.record.__struct_fields__}
        self.message = SimpleNamespace(**fields, timestamp=0.0, generation_id=generation)
        self.acknowledged = False

    def ack(self):
        self.acknowledged = True


async def directly(function, *arguments):
    return function(*arguments)


def flusher(producer, **settings):
    owned = OwnedPartition(PartitionState(0, 1), producer, PoolCopy())
    return owned, Flusher(
        StreamsSettings(**settings),
        StreamsMetrics(),
        {0: owned},
        directly,
        lambda event: event.message.generation_id == 1,
    )


async def test_what_is_committed_is_acknowledged_but_for_events_of_an_older_assignment():
    """An older event would move offsets of a partition that has a new owner."""
    producer = Producer()
    owned, flush = flusher(producer, flush_events_max=2)
    present, older = FaustEvent(facts.call(), 0), FaustEvent(facts.completed(), 1, generation=0)
    flush.fold(owned, present, present.record)
    assert not flush.is_full
    flush.fold(owned, older, older.record)
    assert flush.is_full
    await flush.flush()
    assert (present.acknowledged, older.acknowledged, len(producer.batches)) == (True, False, 1)
    assert not flush.is_full
    await flush.flush()
    assert len(producer.batches) == 1, "nothing is pending"


@pytest.mark.parametrize(
    ("last", "hurries"),
    [
        ([], False),
        ([facts.completed(trajectory="t0")], False),
        ([facts.completed(trajectory="t0"), facts.completed(trajectory="t1")], True),
        ([facts.closed()], True),
        ([facts.call("undeclared")], True),
        ([facts.reward(value=float("nan"))], True),
    ],
)
async def test_a_partition_is_written_at_once_when_a_group_may_be_ready(last, hurries):
    """One declared group of two, and what came last: while it waits for members, its rows wait for the next words; a group that is
    whole, closed or undeclared, and a dead letter, do not."""
    producer = Producer()
    owned, flush = flusher(producer, flush_waiting_s=60)
    said = [
        facts.opened(expected_size=2),
        facts.call(trajectory="t0"),
        facts.call(trajectory="t1", call_id="c1"),
        *last,
    ]
    owned.taken_at_s = time.monotonic()
    for event in [FaustEvent(fact, offset) for offset, fact in enumerate(said)]:
        flush.fold(owned, event, event.record)
    await flush.flush_unless_behind(fetched=0)
    assert bool(producer.batches) is hurries
    await flush.flush()
    assert (len(producer.batches), owned.pending) == (1, False)


async def test_what_a_flush_leaves_counts_towards_the_one_that_waits_for_nothing():
    """A partition that is not due yet keeps its facts, and a full one is due."""
    owned, flush = flusher(Producer(), flush_events_max=2, flush_waiting_s=60)
    owned.taken_at_s = time.monotonic()
    for offset, fact in enumerate([facts.opened(expected_size=2), facts.call()]):
        assert not flush.is_full
        event = FaustEvent(fact, offset)
        flush.fold(owned, event, event.record)
        await flush.flush_unless_behind(fetched=0)
    assert flush.is_full


async def test_nothing_is_acknowledged_before_its_effect_is_committed():
    """A transaction that fails leaves its events to whoever comes next."""
    owned, flush = flusher(Producer(OSError("no broker")))
    event = FaustEvent(facts.call(), 0)
    flush.fold(owned, event, event.record)
    with pytest.raises(OSError, match="no broker"):
        await flush.flush()
    assert not event.acknowledged


async def test_a_worker_leaves_when_what_it_folded_cannot_be_written():
    """State is ahead of the log then: the process ends, and another reads the log again."""
    codes = []
    worker = StreamsWorker(StreamsSettings(flush_events_max=1), LogSettings(partitions=1), leave=codes.append)
    worker.app.consumer_generation_id = 1
    producer = Producer()
    worker._ownership.partitions[0] = OwnedPartition(PartitionState(0, 1), producer, PoolCopy())

    async def events(*some):
        for event in some:
            yield event

    written, elsewhere = FaustEvent(facts.call(), 0), FaustEvent(facts.completed(), 1, generation=2)
    await worker._consume(events(written, elsewhere))
    assert (written.acknowledged, elsewhere.acknowledged, len(producer.batches), codes) == (True, False, 1, [])
    worker._ownership.partitions[0] = OwnedPartition(PartitionState(0, 1), Producer(OSError("no broker")), PoolCopy())
    await worker._consume(events(FaustEvent(facts.call(), 0)))
    assert codes == [ExitCode.BROKE]


async def test_a_gap_is_not_healed_in_a_partition_that_was_given_up_meanwhile():
    """A rebalance may come while an event waits for the lock: its partition is closed then, and that is no failure."""
    codes = []
    worker = StreamsWorker(StreamsSettings(), LogSettings(partitions=1), leave=codes.append)
    worker.app.consumer_generation_id = 1
    owned = OwnedPartition(PartitionState(0, 1, cold=SqliteColdStore()), Producer(), PoolCopy())
    worker._ownership.partitions[0] = owned

    async def heal(*_):
        owned.state.apply(record(facts.call(), 0))

    worker._ownership.heal = heal
    async with worker._flusher.lock:
        consuming = asyncio.create_task(worker._on_event(FaustEvent(facts.completed(), 1)))
        await asyncio.sleep(0)
        del worker._ownership.partitions[0]
        owned.state.close()
    await consuming
    assert (codes, owned.pending) == ([], False)

"""What every log promises, be it Kafka or its memory twin."""

import asyncio
import contextlib
import itertools
from concurrent.futures import wait

import pytest

from claw_r1.eventlog.errors import (
    Fenced,
    HistoryCut,
    LogError,
    NotAcknowledged,
    RecordTooLarge,
    TopicMissing,
)
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.protocols import Producer
from claw_r1.eventlog.records import Outgoing, Position
from claw_r1.schemas.errors import EmptyValue
from claw_r1.schemas.topics import BATCHES, CALLS, GROUPS, LARGEST_RECORD_BYTES, REWARDS, STEPS
from tests.eventlog.samples import AnyLog, item, names, started, visible

WAIT_S = 15


# Publishing


async def test_acknowledged_means_readable_at_the_position(log: AnyLog, producer: Producer) -> None:
    """publish returns the position at which a reader then finds the event, its key and its headers."""
    event = started()
    at = await producer.publish(CALLS, b"g", event)
    (record,) = log.read_range(CALLS, at.partition, at.offset, at.offset + 1)
    assert record.position == at
    assert record.event() == event
    assert record.key == b"g"
    assert dict(record.headers)["ce_id"] == event.envelope.event_id.encode()
    assert at.topic.endswith(".calls")


async def test_order_of_a_key_is_the_order_of_publishing(log: AnyLog, producer: Producer) -> None:
    """Records of one key, published all at once, stand in their partition in the order given."""
    positions = await producer.publish_all([item(str(n)) for n in range(200)])
    assert [at.offset for at in positions] == list(range(200))
    assert names(log.read_range(CALLS, positions[0].partition, 0, 200)) == [str(n) for n in range(200)]


async def test_the_key_decides_the_partition_as_in_java(log: AnyLog, producer: Producer) -> None:
    """A record without a partition goes where murmur2 of its key says, for odd keys too."""
    keys = ["", "21", "foobar", "a-little-bit-long-string", "ключ/🙂", "g" * 1000, *map(str, range(40))]
    positions = await producer.publish_all([item(key=key) for key in keys])
    assert [at.partition for at in positions] == [partition_of(key.encode(), 2) for key in keys]


async def test_a_named_partition_wins_over_the_key(log: AnyLog, producer: Producer) -> None:
    """Pool records name their partition, and stand there whatever their key hashes to."""
    positions = await producer.publish_all([item(key=str(n), partition=1) for n in range(8)])
    assert {at.partition for at in positions} == {1}


async def test_the_log_keeps_both_copies_of_a_fact(log: AnyLog, producer: Producer) -> None:
    """A fact that is published twice stands there twice with one event_id: readers deduplicate, not the log."""
    event = started()
    first, second = await producer.publish(CALLS, b"g", event), await producer.publish(CALLS, b"g", event)
    assert second.offset == first.offset + 1
    records = log.read_range(CALLS, first.partition, first.offset, second.offset + 1)
    assert [record.event() for record in records] == [event, event]


def test_threads_publish_too(log: AnyLog, producer: Producer) -> None:
    """publish_now blocks until acknowledged; produce gives a future of the same position."""
    assert producer.publish_now(CALLS, b"g", started()).offset == 0
    futures = [producer.produce(item()) for _ in range(10)]
    wait(futures, WAIT_S)
    assert [future.result().offset for future in futures] == list(range(1, 11))


def test_a_large_record_passes_and_one_above_the_limit_is_named(log: AnyLog, producer: Producer) -> None:
    """Seven MiB go through and come back; more than the limit raises RecordTooLarge and harms nobody else."""
    large = Outgoing(topic=CALLS, key=b"g", value=b"x" * (7 << 20))
    at = producer.produce(large).result(WAIT_S)
    assert log.read_range(CALLS, at.partition, 0, 1)[0].value == large.value
    with pytest.raises(RecordTooLarge):
        producer.produce(Outgoing(topic=CALLS, key=b"g", value=b"x" * (LARGEST_RECORD_BYTES + 1))).result(WAIT_S)
    assert producer.produce(item()).result(WAIT_S).offset == 1


async def test_a_closed_producer_takes_nothing(log: AnyLog) -> None:
    """Publishing after close raises NotAcknowledged at once, and closing twice is no error."""
    producer = log.producer()
    producer.close()
    producer.close()
    with pytest.raises(NotAcknowledged):
        await asyncio.wait_for(producer.publish(CALLS, b"g", started()), WAIT_S)


async def test_a_missing_topic_is_named(log: AnyLog, producer: Producer) -> None:
    """Writing to or reading a topic that nobody created raises TopicMissing; nothing creates it silently."""
    bare = _without_topics(log)
    with (
        contextlib.closing(bare.producer()) as bare_producer,
        pytest.raises(TopicMissing, match=r"bare\.calls.*create"),
    ):
        await bare_producer.publish(CALLS, b"g", started())
    with pytest.raises(TopicMissing):
        bare.reader([CALLS])
    with pytest.raises(TopicMissing):
        bare.end_offsets([CALLS])


def test_creating_topics_again_creates_nothing(log: AnyLog) -> None:
    """create_topics names what it created, so the second call returns nothing."""
    assert log.create_topics() == []


# Transactions


def test_a_transaction_is_seen_after_its_commit_and_takes_an_offset_more(
    log: AnyLog, stack: contextlib.ExitStack
) -> None:
    """commit returns positions in the order of its items; a marker follows in each partition it wrote to."""
    owner = stack.enter_context(contextlib.closing(log.transactions("run")))
    owner.open()
    positions = visible(log, owner.commit([item(name, topic=BATCHES, partition=1) for name in "ab"]))
    assert [(at.partition, at.offset) for at in positions] == [(1, 0), (1, 1)]
    ends = log.end_offsets([BATCHES])
    assert sorted(ends.values()) == [0, 3]
    assert names(log.read_range(BATCHES, 1, 0, 3)) == ["a", "b"]


def test_reading_ends_by_position_where_markers_leave_gaps(log: AnyLog, stack: contextlib.ExitStack) -> None:
    """read_to_end and read_range return every record and stop, though markers take offsets between and after them."""
    owner = stack.enter_context(contextlib.closing(log.transactions("run")))
    owner.open()
    for n in range(5):
        visible(log, owner.commit([item(str(n), topic=GROUPS, partition=0)]))
    reader = stack.enter_context(contextlib.closing(log.reader([GROUPS])))
    assert names(list(reader.read_to_end())) == list("01234")
    assert reader.at_end()
    assert sorted(reader.positions().values()) == [0, 10]
    assert names(log.read_range(GROUPS, 0, 1, 10)) == list("1234")
    assert log.read_range(GROUPS, 0, 9, 10) == []


def test_an_empty_transaction_leaves_no_trace(log: AnyLog, stack: contextlib.ExitStack) -> None:
    """Committing nothing writes no marker."""
    owner = stack.enter_context(contextlib.closing(log.transactions("run")))
    owner.open()
    assert owner.commit([]) == []
    assert set(log.end_offsets([BATCHES]).values()) == {0}


def test_the_second_owner_fences_the_first(log: AnyLog, stack: contextlib.ExitStack) -> None:
    """After somebody else opened the id, commit raises Fenced and writes nothing; the new owner goes on."""
    first, second = (stack.enter_context(contextlib.closing(log.transactions("run"))) for _ in range(2))
    first.open()
    visible(log, first.commit([item("first", topic=BATCHES)]))
    second.open()
    with pytest.raises(Fenced, match="run"):
        first.commit([item("late", topic=BATCHES)])
    visible(log, second.commit([item("second", topic=BATCHES)]))
    reader = stack.enter_context(contextlib.closing(log.reader([BATCHES])))
    assert names(list(reader.read_to_end())) == ["first", "second"]


def test_owners_of_other_ids_do_not_disturb_each_other(log: AnyLog, stack: contextlib.ExitStack) -> None:
    """Fencing is by transactional id."""
    first, second = (stack.enter_context(contextlib.closing(log.transactions(name))) for name in ("a", "b"))
    first.open()
    second.open()
    assert first.commit([item()])
    assert second.commit([item()])


def test_a_refused_transaction_writes_nothing_and_the_next_one_works(log: AnyLog, stack: contextlib.ExitStack) -> None:
    """A record that is too large takes the records before it in its transaction down with it, and only those."""
    owner = stack.enter_context(contextlib.closing(log.transactions("run")))
    owner.open()
    with pytest.raises(RecordTooLarge):
        owner.commit([item("no", topic=BATCHES), Outgoing(topic=BATCHES, key=b"g", value=b"x" * (9 << 20))])
    visible(log, owner.commit([item("yes", topic=BATCHES)]))
    reader = stack.enter_context(contextlib.closing(log.reader([BATCHES])))
    assert names(list(reader.read_to_end())) == ["yes"]


def test_commit_needs_open(log: AnyLog) -> None:
    """Committing before open is a bug of the caller, and said so."""
    with pytest.raises(RuntimeError, match="open"):
        log.transactions("run").commit([item()])


# Reading


def test_a_reader_at_the_end_sees_only_what_comes_later(
    log: AnyLog, producer: Producer, stack: contextlib.ExitStack
) -> None:
    """The end is taken when the reader opens: nothing after that is missed, nothing before it is shown."""
    producer.publish_now(CALLS, b"g", started("before"))
    reader = stack.enter_context(contextlib.closing(log.reader([CALLS], start="end")))
    assert reader.positions() == log.end_offsets([CALLS])
    producer.publish_now(CALLS, b"g", started("after"))
    assert names(reader.poll(WAIT_S)) == ["after"]


def test_a_reader_starts_where_it_is_told(log: AnyLog, producer: Producer, stack: contextlib.ExitStack) -> None:
    """A start mapping gives the first offset per partition; partitions it leaves out begin at the beginning."""
    places = [producer.produce(item(f"{p}{n}", partition=p)).result(WAIT_S) for p in (0, 1) for n in range(3)]
    start = {(places[0].topic, 0): 2}
    reader = stack.enter_context(contextlib.closing(log.reader([CALLS], start=start)))
    assert sorted(names(list(reader.read_to_end()))) == ["02", "10", "11", "12"]
    assert reader.positions() == {(places[0].topic, 0): 3, (places[0].topic, 1): 3}


def test_a_reader_takes_only_its_partitions_and_topics(
    log: AnyLog, producer: Producer, stack: contextlib.ExitStack
) -> None:
    """Records of other partitions and topics are not shown."""
    for topic in (CALLS, REWARDS, STEPS):
        for partition in (0, 1):
            producer.produce(item(f"{topic.name}{partition}", topic=topic, partition=partition)).result(WAIT_S)
    reader = stack.enter_context(contextlib.closing(log.reader([CALLS, REWARDS], partitions=[1])))
    assert sorted(names(list(reader.read_to_end()))) == ["calls1", "rewards1"]


def test_poll_gives_at_most_what_was_asked_and_nothing_twice(
    log: AnyLog, producer: Producer, stack: contextlib.ExitStack
) -> None:
    """Polls of a few records each add up to the whole log, in order."""
    for future in [producer.produce(item(str(n))) for n in range(10)]:
        future.result(WAIT_S)
    reader = stack.enter_context(contextlib.closing(log.reader([CALLS])))
    polls: list[list[str]] = []
    while not reader.at_end():
        polls.append(names(reader.poll(1, records_max=3)))
    assert max(map(len, polls)) <= 3
    assert [*itertools.chain(*polls)] == [str(n) for n in range(10)]


def test_poll_of_a_quiet_log_returns_nothing_in_time(log: AnyLog, stack: contextlib.ExitStack) -> None:
    """An empty log is at its end, and poll comes back empty after its timeout."""
    reader = stack.enter_context(contextlib.closing(log.reader([CALLS])))
    assert reader.poll(0.2) == []
    assert reader.at_end()
    assert list(reader.read_to_end()) == []


def test_deleted_history_is_an_error_and_never_a_jump(
    log: AnyLog, producer: Producer, stack: contextlib.ExitStack
) -> None:
    """After retention took the first records, whoever asks for them gets HistoryCut; the rest stays readable."""
    positions = [producer.produce(item(str(n), partition=0)).result(WAIT_S) for n in range(6)]
    topic = positions[0].topic
    lookup = stack.enter_context(contextlib.closing(log.lookup()))
    log.delete_records({(topic, 0): 4})
    with pytest.raises(HistoryCut, match="4"):
        log.read_range(CALLS, 0, 2, 6)
    with pytest.raises(HistoryCut):
        lookup.get(positions)
    late = stack.enter_context(contextlib.closing(log.reader([CALLS], start={(topic, 0): 1})))
    with pytest.raises(HistoryCut):
        list(late.read_to_end())
    assert names(log.read_range(topic, 0, 4, 6)) == ["4", "5"]
    fresh = stack.enter_context(contextlib.closing(log.reader([CALLS])))
    assert names(list(fresh.read_to_end())) == ["4", "5"]


def test_a_compacted_topic_is_not_cut(log: AnyLog, producer: Producer) -> None:
    """Records of a projection go by tombstone and compaction only; deleting them by offset raises LogError."""
    at = producer.produce(item(topic=GROUPS)).result(WAIT_S)
    with pytest.raises(LogError):
        log.delete_records({(at.topic, at.partition): 1})


def test_a_range_beyond_the_end_is_an_error(log: AnyLog, producer: Producer) -> None:
    """read_range gives the whole range or raises: LogError when the log does not reach that far."""
    producer.produce(item(partition=0)).result(WAIT_S)
    with pytest.raises(LogError, match="ends at 1"):
        log.read_range(CALLS, 0, 0, 2)
    assert log.read_range(CALLS, 0, 1, 1) == []


def test_facts_are_found_by_position(log: AnyLog, producer: Producer, stack: contextlib.ExitStack) -> None:
    """A lookup of scattered positions, in any order and with repeats, gives exactly the records there."""
    futures = [producer.produce(item(str(n), partition=n % 2)) for n in range(900)]
    positions = [future.result(WAIT_S) for future in futures]
    lookup = stack.enter_context(contextlib.closing(log.lookup()))
    wanted = [positions[n] for n in (899, 0, 7, 7, 450, 451, 452, 13)]
    found = lookup.get(wanted)
    assert {at: names([record])[0] for at, record in found.items()} == {
        positions[n]: str(n) for n in (0, 7, 13, 450, 451, 452, 899)
    }
    assert lookup.get([]) == {}
    assert set(lookup.get(positions[:3])) == set(positions[:3])


def test_a_position_without_a_record_is_history_cut(log: AnyLog, stack: contextlib.ExitStack) -> None:
    """A lookup at a transaction marker names the position instead of waiting or giving a neighbour."""
    owner = stack.enter_context(contextlib.closing(log.transactions("run")))
    owner.open()
    (at,) = visible(log, owner.commit([item(partition=0)]))
    lookup = stack.enter_context(contextlib.closing(log.lookup()))
    with pytest.raises(HistoryCut, match="no record"):
        lookup.get([at, Position(at.topic, 0, at.offset + 1)])


def test_a_tombstone_is_a_record_without_an_event(log: AnyLog, producer: Producer) -> None:
    """A null value travels; decoding it raises EmptyValue and not something of the codec's inside."""
    at = producer.produce(Outgoing.tombstone(GROUPS, b"g")).result(WAIT_S)
    (record,) = log.read_range(GROUPS, at.partition, at.offset, at.offset + 1)
    assert (record.key, record.value) == (b"g", None)
    with pytest.raises(EmptyValue):
        record.event()


def test_a_group_that_never_committed_has_no_offsets(log: AnyLog) -> None:
    """committed_offsets answers for every partition asked, with None where there is nothing."""
    offsets = log.committed_offsets("nobody", [CALLS, REWARDS], [0, 1])
    assert len(offsets) == 4
    assert set(offsets.values()) == {None}


def _without_topics(log: AnyLog) -> AnyLog:
    from claw_r1.eventlog.kafka.log import KafkaLog
    from claw_r1.eventlog.memory import MemoryLog

    settings = log.settings.model_copy(update={"prefix": "bare"})
    return MemoryLog(settings, empty=True) if isinstance(log, MemoryLog) else KafkaLog(settings)

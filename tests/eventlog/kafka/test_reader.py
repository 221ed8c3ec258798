"""What a reader asks of the broker, and when it hears of a record."""

import os

import pytest

from claw_r1.eventlog.kafka.librdkafka import GATHERED_BYTES, IDLE_FETCH_MS, reader_config
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Outgoing
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import CALLS, GROUPS, KEYS, WORKERS


@pytest.mark.parametrize(
    ("topics", "waits_ms"),
    [((WORKERS, KEYS), IDLE_FETCH_MS), ((WORKERS, GROUPS), LogSettings().fetch_wait_ms)],
    ids=["records only", "marks of transactions, too"],
)
def test_a_fetch_waits_long_where_no_mark_has_to_be_found(topics, waits_ms):
    """A reader of a quiet topic asks twice a second; where transactions end in a mark, the end is found as soon as before."""
    assert reader_config(LogSettings(), topics, 0)["fetch.wait.max.ms"] == waits_ms


def test_a_longer_wait_of_the_settings_stands():
    assert reader_config(LogSettings(fetch_wait_ms=2000), [KEYS], 0)["fetch.wait.max.ms"] == 2000


@pytest.mark.kafka
async def test_a_gathering_reader_hears_of_many_records_at_once(log_settings):
    """A small record waits at the broker, until there is enough for an answer; each comes once, in order."""
    kafka = KafkaLog(log_settings)
    producer = kafka.producer()
    try:
        with LogReader(log_settings, [CALLS], partitions=[0], gather_ms=20_000) as reader:
            reader.poll(0.1)  # the first fetch may have begun before anything was there
            written = await producer.publish_all([small(), small()])
            assert reader.poll(1.0) == []
            written += await producer.publish_all([large()])
            heard = [record.position for _ in written for record in reader.poll(15.0, len(written))]
    finally:
        producer.close()
    assert heard == written


def small() -> Outgoing:
    return Outgoing(topic=CALLS, key=b"g", value=b"small", partition=0)


def large() -> Outgoing:
    """More than a fetch waits for, whatever compression makes of it."""
    return Outgoing(topic=CALLS, key=b"g", value=os.urandom(GATHERED_BYTES + (64 << 10)), partition=0)

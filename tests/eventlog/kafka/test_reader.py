"""When a reader hears of a record."""

import os

import pytest

from claw_r1.eventlog.kafka.librdkafka import GATHERED_BYTES
from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.kafka.reader import LogReader
from claw_r1.eventlog.records import Outgoing
from claw_r1.schemas.topics import CALLS


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

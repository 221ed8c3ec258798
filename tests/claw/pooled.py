"""Facts and the rows that the streams would make of them, on a real log."""

from collections.abc import Iterable
from contextlib import closing

from claw_r1.eventlog.kafka.admin import end_offsets
from claw_r1.eventlog.kafka.producer import EventProducer
from claw_r1.eventlog.kafka.reader import commit_offsets
from claw_r1.eventlog.partitioner import partition_of
from claw_r1.eventlog.records import Outgoing, Position
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.codec import decode
from claw_r1.schemas.events import Event, GroupRecord, StepRecord, TrajectoryRecord
from claw_r1.schemas.keys import group_key
from claw_r1.schemas.topics import FACTS, TOPICS
from tests.trainer.pooled import rows_of


def write(settings: LogSettings, history: Iterable[Event]) -> list[tuple[str, bytes, bytes]]:
    """Writes the facts in order, and each row as it comes to be; streams have read all. The rows: (topic, key, value)."""
    topics = {topic.name: topic for topic in TOPICS}
    written: list[tuple[str, bytes, bytes]] = []
    with closing(EventProducer(settings)) as producer:

        def append(item: Outgoing) -> Position:
            return producer.produce(item).result()

        for _, topic, key, value in rows_of(history, append):
            assert value is not None, "these histories evict nothing"
            written.append((topic, key, value))
            row = decode(value)
            assert isinstance(row, StepRecord | TrajectoryRecord | GroupRecord)
            partition = partition_of(group_key(row.group_id), settings.partitions)
            producer.produce(Outgoing.of(topics[topic], key, row, partition)).result()
    commit_offsets(settings, settings.catalogue().streams_group, end_offsets(settings, FACTS))
    return written

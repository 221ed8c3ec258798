"""Small events for the log's tests, told apart by a name."""

import time
from collections.abc import Sequence

from claw_r1.eventlog.kafka.log import KafkaLog
from claw_r1.eventlog.memory import MemoryLog
from claw_r1.eventlog.records import Outgoing, Position, Record
from claw_r1.schemas.envelopes import envelope
from claw_r1.schemas.events import TrajectoryStarted
from claw_r1.schemas.topics import CALLS, Topic

VISIBLE_TIMEOUT_S = 15
AnyLog = MemoryLog | KafkaLog
"""What the contract holds for: more than rooms need of a log (`claw_r1.eventlog.protocols.Log`)."""


def started(trajectory: str = "t", group: str = "g") -> TrajectoryStarted:
    return TrajectoryStarted(envelope=envelope("test/0"), group_id=group, trajectory_id=trajectory)


def item(name: str = "t", *, key: str = "g", topic: Topic = CALLS, partition: int | None = None) -> Outgoing:
    return Outgoing.of(topic, key.encode(), started(name, key), partition)


def names(records: Sequence[Record]) -> list[str]:
    """What `item` was given, in the order of the records."""
    events = [record.event() for record in records]
    return [event.trajectory_id for event in events if isinstance(event, TrajectoryStarted)]


def visible(log: AnyLog, positions: Sequence[Position]) -> list[Position]:
    """`positions`, once readers see them: Kafka writes the markers of a transaction just after its commit returned."""
    deadline = time.monotonic() + VISIBLE_TIMEOUT_S
    for at in positions:
        topic = log.settings.catalogue().topic(at.topic)
        while log.end_offsets([topic])[at.topic, at.partition] <= at.offset + 1:
            assert time.monotonic() < deadline, f"{at} stays invisible"
            time.sleep(0.005)
    return list(positions)

"""Small events for the log's tests, told apart by a name."""

from eventlog.records import Outgoing
from schemas.envelopes import envelope
from schemas.events import TrajectoryStarted
from schemas.topics import CALLS, Topic


def started(trajectory: str = "t", group: str = "g") -> TrajectoryStarted:
    return TrajectoryStarted(envelope=envelope("test/0"), group_id=group, trajectory_id=trajectory)


def item(name: str = "t", *, key: str = "g", topic: Topic = CALLS, partition: int | None = None) -> Outgoing:
    return Outgoing.of(topic, key.encode(), started(name, key), partition)


def names(records: list) -> list[str]:
    """What `item` was given, in the order of the records."""
    return [record.event().trajectory_id for record in records]

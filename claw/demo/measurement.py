"""What a run wrote to the log from some offsets on: read once, at the end, by a reader of its own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from eventlog.kafka.reader import LogReader
from eventlog.records import Record, readable
from eventlog.settings import LogSettings
from schemas.events import CallCaptured, TrajectoryRecord
from schemas.topics import CALLS, TRAJECTORIES, Topic

Offsets = Mapping[tuple[str, int], int]  # (full topic name, partition) -> next offset


def since(settings: LogSettings, offsets: Offsets, topics: Sequence[Topic]) -> dict[tuple[str, int], int]:
    """The part of the offsets that belongs to these topics."""
    names = {settings.catalogue().name(topic) for topic in topics}
    return {place: offset for place, offset in offsets.items() if place[0] in names}


def trajectories(settings: LogSettings, offsets: Offsets) -> list[TrajectoryRecord]:
    """Latest record of each trajectory that changed since."""
    latest = {record.key: record for record in _records(settings, offsets, TRAJECTORIES)}
    return [event for event in readable(latest.values()) if isinstance(event, TrajectoryRecord)]


def calls_captured(settings: LogSettings, offsets: Offsets) -> int:
    """Number of distinct calls captured since: the agents must have got as many replies."""
    events = readable(_records(settings, offsets, CALLS))
    return len({event.call_id for event in events if isinstance(event, CallCaptured)})


def _records(settings: LogSettings, offsets: Offsets, topic: Topic) -> Iterator[Record]:
    with closing(LogReader(settings, [topic], start=since(settings, offsets, [topic]))) as reader:
        yield from reader.read_to_end()

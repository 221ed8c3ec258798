"""The records that go into the log and come out of it, without a Kafka client."""

import contextlib
from collections.abc import Iterable, Iterator

from msgspec import Struct

from claw_r1.schemas import cloudevents, codec
from claw_r1.schemas.cloudevents import Headers
from claw_r1.schemas.errors import UndecodableRecord
from claw_r1.schemas.events import Event, FactPosition
from claw_r1.schemas.topics import Topic

Place = tuple[str, int]
"""A partition: full topic name and partition number."""
OFFSET_UNKNOWN = -1


class Position(Struct, frozen=True, order=True):
    """The position of a record. `offset` is `OFFSET_UNKNOWN` in the rare case of an acknowledgement that did not
    say."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, fact: FactPosition) -> "Position":
        """Returns the position of a record that another one names."""
        return cls(fact.topic, fact.partition, fact.offset)


class Record(Struct, frozen=True):
    """One record of the log. A `value` of None is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def position(self) -> Position:
        return Position(self.topic, self.partition, self.offset)

    def event(self) -> Event:
        """The value decoded. Raises `claw_r1.schemas.errors.UndecodableRecord`, for a tombstone too."""
        return codec.decode(self.value)


class Outgoing(Struct, frozen=True, kw_only=True):
    """A record on its way. Without `partition`, the murmur2 hash of the key decides it."""

    topic: Topic
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None

    @classmethod
    def of(cls, topic: Topic, key: bytes, event: Event, partition: int | None = None) -> "Outgoing":
        """An event encoded, with CloudEvents headers. Raises ValueError or TypeError when a field does not fit."""
        return cls(
            topic=topic,
            key=key,
            value=codec.encode(event),
            headers=cloudevents.headers(event),
            partition=partition,
        )

    @classmethod
    def tombstone(cls, topic: Topic, key: bytes, partition: int | None = None) -> "Outgoing":
        """The record that removes `key` from a compacted topic."""
        return cls(topic=topic, key=key, value=None, partition=partition)


def readable(records: Iterable[Record]) -> Iterator[Event]:
    """The events of those that hold one. Tombstones and poison are passed over: the streams report poison, once."""
    for record in records:
        if record.value is not None:
            with contextlib.suppress(UndecodableRecord):
                yield record.event()

"""Reading the log by position: no consumer group, committed records only.

Invariant: records of a partition come in order and without a gap; where retention has made one, HistoryCut is raised
instead of a jump. The end of a read is an offset, never a count: transaction markers and aborted records take offsets
that no reader sees.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from claw_r1.eventlog.errors import BrokerUnreachable
from claw_r1.eventlog.kafka.librdkafka import (
    UNREACHABLE,
    consumer_config,
    error_of,
    fetched,
    headers_of,
    heals,
    patiently,
    record_of,
    request_failure,
)
from claw_r1.eventlog.kafka.offsets import OUT_OF_RANGE, ReadTimeout, offsets_of, out_of_range, places_of, reached
from claw_r1.eventlog.kafka.ranges import FactLookup, read_range, stream_ranges
from claw_r1.eventlog.patience import Patience
from claw_r1.eventlog.protocols import Start
from claw_r1.eventlog.records import Place, Record
from claw_r1.eventlog.security import SecretsWatch
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.cloudevents import Headers
from claw_r1.schemas.topics import Topic

# The ways of reading, all in one place.
__all__ = [
    "FactLookup",
    "LogReader",
    "commit_offsets",
    "committed_offsets",
    "read_range",
    "read_topics",
    "stream_ranges",
]

Wants = Callable[[str, bytes | None, Headers], bool]
POLL_S = 0.2
RECORDS_PER_POLL = 2000


class LogReader:
    """Reads some partitions of some topics. Belongs to one thread: a second one in any method blocks both."""

    def __init__(
        self,
        settings: LogSettings,
        topics: Sequence[Topic],
        *,
        partitions: Sequence[int] | None = None,
        start: Start = "beginning",
        wants: Wants | None = None,
        gather_ms: int = 0,
    ) -> None:
        """Opens and assigns. `partitions` None: all. A place that a `start` mapping leaves out begins at the beginning.

        wants: by full topic name, key and headers; what it refuses is passed over before it is made into a record.
        gather_ms: how much later a record, and the answer to `end_offsets`, may come, so that many records come together.
        Raises BrokerUnreachable, TopicMissing.
        """
        self._settings = settings
        self._wants = wants
        self._secrets = SecretsWatch(settings)
        self._config = partial(consumer_config, settings, gather_ms=gather_ms)
        self._consumer = Consumer(self._config())
        try:
            names = [settings.catalogue().name(topic) for topic in topics]
            self._places = places_of(self._consumer, settings, names, partitions)
            self._positions = self._starts(start)
            self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._positions.items()])
            self._positions = {place: max(offset, 0) for place, offset in self._positions.items()}
        except BaseException:
            self._consumer.close()
            raise

    def poll(self, timeout_s: float, records_max: int = 500) -> list[Record]:
        """Up to `records_max` records; [] when none came within `timeout_s`. Raises HistoryCut."""
        if self._secrets.changed():
            self._reopen()
        deadline = time.monotonic() + timeout_s
        records: list[Record] = []
        late = False
        while not records and not late:  # what is passed over must not hold the caller up
            messages = fetched(self._consumer, max(0.0, deadline - time.monotonic()), records_max)
            records = [record for message in messages if (record := self._accept(message))]
            late = not messages or time.monotonic() > deadline
        return records

    def read_to_end(self) -> Iterator[Record]:
        """Everything up to the end of the log at the moment of the call, open transactions excluded.

        Records beyond that end may come along when they are there. After a broker restart the end may be too low for a
        moment: whoever knows what must be there reads again. Raises BrokerUnreachable when nothing moves for
        `read_timeout_s`.
        """
        ends = self.end_offsets()
        patience = ReadTimeout(self._settings)
        while not reached(self._positions, ends):
            before = dict(self._positions)
            yield from self.poll(POLL_S, RECORDS_PER_POLL)
            patience.check(self._positions != before)

    def read_written(self, timeout_s: float = 120.0) -> Iterator[Record]:
        """Everything written by the moment of the call, once the transactions that are open now have ended.

        A writer that died in its transaction holds `read_to_end` back to before it, until its transaction times out.
        Raises BrokerUnreachable when nothing moves for `timeout_s`; the whole, and what the caller does, has no limit.
        """
        ends = self._written_ends()
        patience = Patience(timeout_s)
        while not reached(self._positions, ends):
            before = dict(self._positions)
            yield from self.poll(POLL_S, RECORDS_PER_POLL)
            if patience.is_over(moved=self._positions != before):
                raise BrokerUnreachable(
                    f"a transaction is still open after {timeout_s:.0f} s; the log cannot be read to its end"
                )

    def _written_ends(self) -> dict[Place, int]:
        """One past the last record of each partition, whether its transaction has ended or not."""
        asker = Consumer({**consumer_config(self._settings), "isolation.level": "read_uncommitted"})
        try:
            return offsets_of(asker, self._settings, self._places, OFFSET_END)
        finally:
            asker.close()

    def at_end(self) -> bool:
        """Returns whether everything committed by now has been read; asks the broker."""
        return reached(self._positions, self.end_offsets())

    def positions(self) -> dict[Place, int]:
        """The offset that each partition continues at."""
        return dict(self._positions)

    def end_offsets(self) -> dict[Place, int]:
        """The first offset of each partition that is not yet readable: the end, or the first open transaction."""
        return offsets_of(self._consumer, self._settings, self._places, OFFSET_END)

    def close(self) -> None:
        """Ends the client and its threads. Idempotent."""
        with contextlib.suppress(RuntimeError):  # confluent's word for "closed already"
            self._consumer.close()

    def __enter__(self) -> "LogReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reopen(self) -> None:
        """Goes on with a new client, since certificates are read when a client is made."""
        former, self._consumer = self._consumer, Consumer(self._config())
        places = self._positions.items()
        self._consumer.assign([TopicPartition(*place, offset or OFFSET_BEGINNING) for place, offset in places])
        former.close()

    def _starts(self, start: Start) -> dict[Place, int]:
        if start == "end":
            # Resolved now: librdkafka would do it at the first fetch, and skip what is written in between.
            return self.end_offsets()
        if start == "beginning":
            return dict.fromkeys(self._places, OFFSET_BEGINNING)
        return {place: start.get(place, OFFSET_BEGINNING) for place in self._places}

    def _accept(self, message: Message) -> Record | None:
        """Moves the position. None for what is passed over, an end-of-partition mark, and errors that heal by themselves."""
        place = (str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is None:
            self._positions[place] = int(message.offset() or 0) + 1
            if self._wants is not None and not self._wants(place[0], message.key(), headers_of(message)):
                return None
            return record_of(message)
        if error.code() == KafkaError._PARTITION_EOF:
            self._positions[place] = max(self._positions[place], int(message.offset() or 0))
            return None
        if error.code() in OUT_OF_RANGE:
            raise out_of_range(self._consumer, self._settings, place, int(message.offset() or 0))
        if heals(error) or error.code() in UNREACHABLE:
            return None
        raise request_failure(error, self._settings, place[0])


def read_topics(settings: LogSettings, topics: Sequence[Topic], start: Start = "beginning") -> Iterator[Record]:
    """Every record up to the ends at the first step of the iteration, partition by partition as they come.

    Raises what `LogReader` raises.
    """
    with LogReader(settings, topics, start=start) as reader:
        yield from reader.read_to_end()


def committed_offsets(
    settings: LogSettings, group_id: str, topics: Sequence[Topic], partitions: Iterable[int]
) -> dict[Place, int | None]:
    """Returns the offsets where a consumer group continues; None where it never committed. Raises BrokerUnreachable."""
    numbers = list(partitions)
    names = [settings.catalogue().name(topic) for topic in topics]
    queries = [TopicPartition(name, number) for name in names for number in numbers]
    consumer = Consumer(consumer_config(settings, group_id=group_id))
    try:
        answers = patiently(
            lambda: consumer.committed(queries, timeout=settings.connect_timeout_s), settings, f"group {group_id}"
        )
    finally:
        consumer.close()
    return {(at.topic, at.partition): None if at.offset == OFFSET_INVALID else at.offset for at in answers}


def commit_offsets(settings: LogSettings, group_id: str, offsets: Mapping[Place, int]) -> None:
    """Sets the offsets where a consumer group without members continues from now on. Raises BrokerUnreachable; LogError
    when it has some."""
    consumer = Consumer(consumer_config(settings, group_id=group_id))
    try:
        consumer.commit(offsets=[TopicPartition(*place, at) for place, at in offsets.items()], asynchronous=False)
    except KafkaException as raised:
        raise request_failure(error_of(raised), settings, f"group {group_id}") from raised
    finally:
        consumer.close()

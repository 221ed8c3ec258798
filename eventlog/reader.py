"""Reading the log by position: no consumer group, committed records only.

Invariant: records of a partition come in order and without a gap; where retention has made one, HistoryCut is raised
instead of a jump. The end of a read is an offset, never a count: transaction markers and aborted records take offsets
that no reader sees.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

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

from eventlog.client import UNREACHABLE, consumer_config, error_of, record_of, request_failure, unreachable
from eventlog.errors import HistoryCut, LogError, TopicMissing
from eventlog.protocols import Start
from eventlog.records import Place, Position, Record
from eventlog.settings import LogSettings
from schemas.topics import Topic

OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
POLL_S = 0.2
RETRY_S = 0.05
RECORDS_PER_POLL = 2000
NEIGHBOURS = 200  # facts at most this many offsets apart are read in one sweep
LOOKUP_FETCH_WAIT_MS = 10


class LogReader:
    """Reads some partitions of some topics. Belongs to one thread: a second one in any method blocks both."""

    def __init__(
        self,
        settings: LogSettings,
        topics: Sequence[Topic],
        *,
        partitions: Sequence[int] | None = None,
        start: Start = "beginning",
    ) -> None:
        """Opens and assigns. `partitions` None: all. A place that a `start` mapping leaves out begins at the beginning.

        Raises BrokerUnreachable, TopicMissing.
        """
        self._settings = settings
        self._consumer = Consumer(consumer_config(settings))
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
        deadline = time.monotonic() + timeout_s
        records: list[Record] = []
        while not records:
            first = self._consumer.poll(max(0.0, deadline - time.monotonic()))
            if first is None:
                break
            rest = self._consumer.consume(records_max - 1, 0) if records_max > 1 else []
            records = [record for message in (first, *rest) if (record := self._accept(message))]
        return records

    def read_to_end(self) -> Iterator[Record]:
        """Everything up to the end of the log at the moment of the call, open transactions excluded.

        Records beyond that end may come along when they are there. After a broker restart the end may be too low for a
        moment: whoever knows what must be there reads again. Raises BrokerUnreachable when nothing moves for
        `read_timeout_s`.
        """
        ends = self.end_offsets()
        patience = _Patience(self._settings)
        while not reached(self._positions, ends):
            before = dict(self._positions)
            yield from self.poll(POLL_S, RECORDS_PER_POLL)
            patience.check(self._positions != before)

    def at_end(self) -> bool:
        """Whether everything committed by now has been read; asks the broker."""
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

    def _starts(self, start: Start) -> dict[Place, int]:
        if start == "end":
            # Resolved now: librdkafka would do it at the first fetch, and skip what is written in between.
            return self.end_offsets()
        if start == "beginning":
            return dict.fromkeys(self._places, OFFSET_BEGINNING)
        return {place: start.get(place, OFFSET_BEGINNING) for place in self._places}

    def _accept(self, message: Message) -> Record | None:
        """Moves the position. None for an end-of-partition mark and for errors that heal by themselves."""
        place = (str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is None:
            record = record_of(message)
            self._positions[place] = record.offset + 1
            return record
        if error.code() == KafkaError._PARTITION_EOF:
            self._positions[place] = max(self._positions[place], int(message.offset() or 0))
            return None
        if error.code() in OUT_OF_RANGE:
            raise _out_of_range(self._consumer, self._settings, place, int(message.offset() or 0))
        if error.retriable() or error.code() in UNREACHABLE:
            return None
        raise request_failure(error, self._settings, place[0])


def read_range(settings: LogSettings, topic: str | Topic, partition: int, start: int, end: int) -> list[Record]:
    """The records with start <= offset < end. `topic` is an entry of the catalogue or a full name.

    Raises HistoryCut when the log no longer holds `start`; LogError when it does not reach `end`.
    """
    if start >= end:
        return []
    name = topic if isinstance(topic, str) else settings.catalogue().name(topic)
    with contextlib.closing(_RangeReader(settings)) as reader:
        return list(reader.read({(name, partition): (start, end)}))


def committed_offsets(
    settings: LogSettings, group_id: str, topics: Sequence[Topic], partitions: Iterable[int]
) -> dict[Place, int | None]:
    """Where a consumer group continues; None where it never committed. Raises BrokerUnreachable."""
    numbers = list(partitions)
    names = [settings.catalogue().name(topic) for topic in topics]
    asked = [TopicPartition(name, number) for name in names for number in numbers]
    consumer = Consumer(consumer_config(settings, group_id=group_id))
    try:
        answers = consumer.committed(asked, timeout=settings.connect_timeout_s)
    except KafkaException as raised:
        raise request_failure(error_of(raised), settings) from raised
    finally:
        consumer.close()
    return {(at.topic, at.partition): None if at.offset == OFFSET_INVALID else at.offset for at in answers}


class FactLookup:
    """Finds records again by position. Keeps one client open; belongs to one thread."""

    def __init__(self, settings: LogSettings) -> None:
        self._reader = _RangeReader(settings)

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]:
        """The record at each position: all of them, or HistoryCut, which names one that the log does not hold."""
        wanted = set(positions)
        found: dict[Position, Record] = {}
        for sweep in sweeps(wanted):
            found |= {record.position: record for record in self._reader.read(sweep) if record.position in wanted}
        if missing := wanted - found.keys():
            raise HistoryCut(f"the log holds no record at {min(missing)} ({len(missing)} missing)")
        return found

    def close(self) -> None:
        self._reader.close()


def sweeps(positions: Iterable[Position]) -> list[dict[Place, tuple[int, int]]]:
    """Rounds of ranges [start, end) that cover `positions`, at most one range per partition in each round."""
    ranges: dict[Place, list[tuple[int, int]]] = {}
    for at in sorted(positions):
        mine = ranges.setdefault((at.topic, at.partition), [])
        if mine and at.offset - mine[-1][1] < NEIGHBOURS:
            mine[-1] = (mine[-1][0], at.offset + 1)
        else:
            mine.append((at.offset, at.offset + 1))
    rounds = max(map(len, ranges.values()), default=0)
    return [{place: mine[index] for place, mine in ranges.items() if index < len(mine)} for index in range(rounds)]


def reached(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> bool:
    """Whether every partition was read up to its end."""
    return all(positions.get(place, 0) >= end for place, end in ends.items())


class _RangeReader:
    """Reads bounded ranges, one per partition at a time, with one client."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        # A fetch that finds nothing would hold up the partitions assigned next.
        self._consumer = Consumer(consumer_config(settings, fetch_wait_ms=LOOKUP_FETCH_WAIT_MS))

    def read(self, ranges: Mapping[Place, tuple[int, int]]) -> Iterator[Record]:
        self._check(ranges)
        self._consumer.assign([TopicPartition(*place, start) for place, (start, _) in ranges.items()])
        left = dict(ranges)
        patience = _Patience(self._settings)
        while left:
            messages = self._consumer.consume(RECORDS_PER_POLL, 0.01)
            for message in messages:
                place = (str(message.topic()), int(message.partition() or 0))
                if place in left:
                    yield from self._take(message, place, left)
            patience.check(bool(messages))
        self._consumer.unassign()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # closed already
            self._consumer.close()

    def _check(self, ranges: Mapping[Place, tuple[int, int]]) -> None:
        """Asked of the broker first, because a fetch beyond the end would only wait."""
        lows = offsets_of(self._consumer, self._settings, list(ranges), OFFSET_BEGINNING)
        highs = offsets_of(self._consumer, self._settings, list(ranges), OFFSET_END)
        for place, (start, end) in ranges.items():
            if start < lows[place]:
                raise _cut(place, start, lows[place])
            if end > highs[place]:
                raise LogError(f"{place[0]} partition {place[1]} ends at {highs[place]}, asked was up to {end}")

    def _take(self, message: Message, place: Place, left: dict[Place, tuple[int, int]]) -> Iterator[Record]:
        error = message.error()
        if error is not None and error.code() in OUT_OF_RANGE:
            raise _out_of_range(self._consumer, self._settings, place, left[place][0])
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            return
        end = left[place][1]
        offset = int(message.offset() or 0)
        if error is None and offset < end:
            yield record_of(message)
        if offset >= end - (error is None):
            del left[place]


class _Patience:
    """Raises BrokerUnreachable when a bounded read makes no progress for `read_timeout_s`."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._last = time.monotonic()

    def check(self, progress: bool) -> None:
        now = time.monotonic()
        if progress:
            self._last = now
        elif now - self._last > self._settings.read_timeout_s:
            raise unreachable(self._settings)


def places_of(
    consumer: Consumer, settings: LogSettings, names: Sequence[str], partitions: Sequence[int] | None
) -> list[Place]:
    try:
        known = consumer.list_topics(timeout=settings.connect_timeout_s).topics
    except KafkaException as raised:
        raise request_failure(error_of(raised), settings) from raised
    for name in names:
        if name not in known or known[name].error is not None:
            raise TopicMissing(name)
    return [
        (name, number)
        for name in names
        for number in (sorted(known[name].partitions) if partitions is None else partitions)
    ]


def offsets_of(consumer: Consumer, settings: LogSettings, places: Sequence[Place], which: int) -> dict[Place, int]:
    """First (OFFSET_BEGINNING) or one past the last committed (OFFSET_END) offset of each place, in one request."""
    asked = [TopicPartition(*place, which) for place in places]
    deadline = time.monotonic() + settings.connect_timeout_s
    while True:
        answers, error = _ask_offsets(consumer, settings, asked)
        if error is None:
            return {(answer.topic, answer.partition): answer.offset for answer in answers}
        # A broker is named leader in the metadata a moment before it has the partition.
        if (not error.retriable() and error.code() not in MOVING) or time.monotonic() > deadline:
            raise request_failure(error, settings, ", ".join(sorted({name for name, _ in places})))
        time.sleep(RETRY_S)


def _ask_offsets(
    consumer: Consumer, settings: LogSettings, asked: list[TopicPartition]
) -> tuple[list[TopicPartition], KafkaError | None]:
    """The answers, and the first error: of the request as a whole, or of one partition in it."""
    try:
        answers = consumer.offsets_for_times(asked, timeout=settings.connect_timeout_s)
    except KafkaException as raised:
        return [], error_of(raised)
    return answers, next((answer.error for answer in answers if answer.error is not None), None)


def _out_of_range(consumer: Consumer, settings: LogSettings, place: Place, offset: int) -> LogError:
    low = offsets_of(consumer, settings, [place], OFFSET_BEGINNING)[place]
    if offset < low:
        return _cut(place, offset, low)
    return LogError(f"{place[0]} partition {place[1]} does not reach offset {offset}")


def _cut(place: Place, offset: int, low: int) -> HistoryCut:
    return HistoryCut(
        f"{place[0]} partition {place[1]} begins at {low}, asked was {offset}: retention removed what was before"
    )

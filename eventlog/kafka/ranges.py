"""Reading bounded ranges and single facts again, by position.

Invariant: the answer is whole. What the log no longer holds is HistoryCut, never left out.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, Message, TopicPartition

from claw_r1.eventlog.errors import HistoryCut, LogError
from claw_r1.eventlog.kafka.librdkafka import KafkaConfig, consumer_config, fetched, lookup_config, record_of
from claw_r1.eventlog.kafka.offsets import OUT_OF_RANGE, ReadTimeout, history_cut, offsets_of, out_of_range
from claw_r1.eventlog.records import Place, Position, Record
from claw_r1.eventlog.security import SecretsWatch
from claw_r1.eventlog.settings import LogSettings
from claw_r1.schemas.topics import Topic

POLL_S = 0.2
RECORDS_PER_POLL = 2000
NEIGHBOURS = 100  # facts at most this many offsets apart are read in one sweep


def read_range(settings: LogSettings, topic: str | Topic, partition: int, start: int, end: int) -> list[Record]:
    """The records with start <= offset < end. `topic` is an entry of the catalogue or a full name.

    Raises HistoryCut when the log no longer holds `start`; LogError when it does not reach `end`.
    """
    if start >= end:
        return []
    name = topic if isinstance(topic, str) else settings.catalogue().name(topic)
    with contextlib.closing(_RangeReader(settings, lookup_config(settings))) as reader:
        ranges = {(name, partition): (start, end)}
        reader.check(ranges)
        return list(reader.read(ranges))


def stream_ranges(settings: LogSettings, ranges: Mapping[Place, tuple[int, int]]) -> Iterator[Record]:
    """The records of all `ranges` [start, end), one per partition, as they arrive: in order within a partition.

    Raises HistoryCut or LogError before the first record when the log does not hold all of it; BrokerUnreachable when
    nothing moves for `read_timeout_s`.
    """
    nonempty = {place: (start, end) for place, (start, end) in ranges.items() if start < end}
    if not nonempty:
        return
    with contextlib.closing(_RangeReader(settings, consumer_config(settings))) as reader:
        reader.check(nonempty)
        yield from reader.read(nonempty)


class FactLookup:
    """Finds records again by position. Keeps one client open, while its secrets stay; belongs to one thread."""

    def __init__(self, settings: LogSettings, secrets: SecretsWatch | None = None) -> None:
        self._settings = settings
        self._secrets = secrets or SecretsWatch(settings)
        self._reader = _RangeReader(settings, lookup_config(settings))

    def get(self, positions: Iterable[Position]) -> dict[Position, Record]:
        """The record at each position: all of them, or HistoryCut, which names one that the log does not hold."""
        if self._secrets.changed():
            former, self._reader = self._reader, _RangeReader(self._settings, lookup_config(self._settings))
            former.close()
        distinct = set(positions)
        records: dict[Position, Record] = {}
        self._reader.check(_hull(distinct))
        for sweep in sweeps(distinct):
            records |= {record.position: record for record in self._reader.read(sweep) if record.position in distinct}
        if missing := distinct - records.keys():
            raise HistoryCut(f"the log holds no record at {min(missing)} ({len(missing)} missing)")
        return records

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


def _hull(positions: Iterable[Position]) -> dict[Place, tuple[int, int]]:
    """The range of each partition from its first to its last position."""
    hull: dict[Place, tuple[int, int]] = {}
    for at in positions:
        start, end = hull.get((at.topic, at.partition), (at.offset, at.offset + 1))
        hull[at.topic, at.partition] = (min(start, at.offset), max(end, at.offset + 1))
    return hull


class _RangeReader:
    """Reads bounded ranges, one per partition at a time, with one client."""

    def __init__(self, settings: LogSettings, config: KafkaConfig) -> None:
        self._settings = settings
        self._consumer = Consumer(config)

    def read(self, ranges: Mapping[Place, tuple[int, int]]) -> Iterator[Record]:
        """`check` first: a fetch beyond the end would only wait."""
        self._consumer.assign([TopicPartition(*place, start) for place, (start, _) in ranges.items()])
        remaining = dict(ranges)
        patience = ReadTimeout(self._settings)
        while remaining:
            messages = fetched(self._consumer, POLL_S, RECORDS_PER_POLL)
            for message in messages:
                place = (str(message.topic()), int(message.partition() or 0))
                if place in remaining:
                    yield from self._take(message, place, remaining)
            patience.check(bool(messages))
        self._consumer.unassign()

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # closed already
            self._consumer.close()

    def check(self, ranges: Mapping[Place, tuple[int, int]]) -> None:
        """Raises HistoryCut or LogError when the log does not hold all of `ranges`."""
        if not ranges:
            return
        lows = offsets_of(self._consumer, self._settings, list(ranges), OFFSET_BEGINNING)
        highs = offsets_of(self._consumer, self._settings, list(ranges), OFFSET_END)
        for place, (start, end) in ranges.items():
            if start < lows[place]:
                raise history_cut(place, start, lows[place])
            if end > highs[place]:
                raise LogError(f"{place[0]} partition {place[1]} ends at {highs[place]}, the range goes up to {end}")

    def _take(self, message: Message, place: Place, remaining: dict[Place, tuple[int, int]]) -> Iterator[Record]:
        error = message.error()
        if error is not None and error.code() in OUT_OF_RANGE:
            raise out_of_range(self._consumer, self._settings, place, remaining[place][0])
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            return
        end = remaining[place][1]
        offset = int(message.offset() or 0)
        if error is None and offset < end:
            yield record_of(message)
        if offset >= end - (error is None):
            del remaining[place]

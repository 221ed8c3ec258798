"""Questions to the broker about offsets, and what their answers mean."""

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from eventlog.errors import HistoryCut, LogError, TopicMissing
from eventlog.kafka.librdkafka import error_of, request_failure, unreachable
from eventlog.records import Place
from eventlog.settings import LogSettings

OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
RETRY_S = 0.05


def reached(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> bool:
    """Whether every partition was read up to its end."""
    return all(positions.get(place, 0) >= end for place, end in ends.items())


class ReadTimeout:
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
        existing = consumer.list_topics(timeout=settings.connect_timeout_s).topics
    except KafkaException as raised:
        raise request_failure(error_of(raised), settings) from raised
    for name in names:
        if name not in existing or existing[name].error is not None:
            raise TopicMissing(name)
    return [
        (name, number)
        for name in names
        for number in (sorted(existing[name].partitions) if partitions is None else partitions)
    ]


def offsets_of(consumer: Consumer, settings: LogSettings, places: Sequence[Place], which: int) -> dict[Place, int]:
    """First (OFFSET_BEGINNING) or one past the last committed (OFFSET_END) offset of each place, in one request."""
    queries = [TopicPartition(*place, which) for place in places]
    deadline = time.monotonic() + settings.connect_timeout_s
    while True:
        answers, error = _ask_offsets(consumer, settings, queries)
        if error is None:
            return {(answer.topic, answer.partition): answer.offset for answer in answers}
        # A broker is named leader in the metadata a moment before it has the partition.
        if (not error.retriable() and error.code() not in MOVING) or time.monotonic() > deadline:
            raise request_failure(error, settings, ", ".join(sorted({name for name, _ in places})))
        time.sleep(RETRY_S)


def _ask_offsets(
    consumer: Consumer, settings: LogSettings, queries: list[TopicPartition]
) -> tuple[list[TopicPartition], KafkaError | None]:
    """The answers, and the first error: of the request as a whole, or of one partition in it."""
    try:
        answers = consumer.offsets_for_times(queries, timeout=settings.connect_timeout_s)
    except KafkaException as raised:
        return [], error_of(raised)
    return answers, next((answer.error for answer in answers if answer.error is not None), None)


def out_of_range(consumer: Consumer, settings: LogSettings, place: Place, offset: int) -> LogError:
    low = offsets_of(consumer, settings, [place], OFFSET_BEGINNING)[place]
    if offset < low:
        return cut(place, offset, low)
    return LogError(f"{place[0]} partition {place[1]} does not reach offset {offset}")


def cut(place: Place, offset: int, low: int) -> HistoryCut:
    return HistoryCut(
        f"{place[0]} partition {place[1]} begins at {low}, the read starts at {offset}: retention removed what was before"
    )

"""Questions to the broker about offsets, and what their answers mean."""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ClusterMetadata, TopicMetadata  # type: ignore[attr-defined]  # its stubs forget to re-export them

from claw_r1.eventlog.errors import HistoryCut, LogError, TopicMissing
from claw_r1.eventlog.kafka.librdkafka import RETRY_S, UNKNOWN_TOPIC, error_of, patiently, unreachable
from claw_r1.eventlog.patience import Patience
from claw_r1.eventlog.records import Place
from claw_r1.eventlog.settings import LogSettings

OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
SPREADS_S = 2.0
"""How long a topic that one broker of several has made may be unknown to another."""


def reached(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> bool:
    """Returns whether every partition was read up to its end."""
    return all(positions.get(place, 0) >= end for place, end in ends.items())


class ReadTimeout:
    """Raises BrokerUnreachable when a bounded read makes no progress for `read_timeout_s`."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings, self._patience = settings, Patience(settings.read_timeout_s)

    def check(self, progress: bool) -> None:
        if self._patience.is_over(moved=progress):
            raise unreachable(self._settings)


class TopicLister(Protocol):
    """A consumer is asked: an admin client creates the topic that it is asked about, where the broker lets it."""

    def list_topics(self, topic: str, timeout: float) -> ClusterMetadata: ...


def found_topics(client: TopicLister, settings: LogSettings, names: Iterable[str]) -> dict[str, TopicMetadata]:
    """Returns the broker's metadata of those of these topics that exist. An error of a topic is waited out.

    Each is asked about by name: a cluster may hold thousands of others. Raises BrokerUnreachable, LogError.
    """

    def look(name: str) -> TopicMetadata | None:
        topic = client.list_topics(name, settings.connect_timeout_s).topics.get(name)
        error = None if topic is None else topic.error
        if error is not None and error.code() not in UNKNOWN_TOPIC:
            raise KafkaException(error)
        return topic if error is None else None

    looks = {name: patiently(partial(look, name), settings, name) for name in names}
    return {name: topic for name, topic in looks.items() if topic is not None}


def known_topics(client: TopicLister, settings: LogSettings, names: Sequence[str]) -> dict[str, TopicMetadata]:
    """Returns the broker's metadata of these topics. Raises TopicMissing, BrokerUnreachable, LogError."""
    deadline_s = time.monotonic() + SPREADS_S
    while True:
        topics = found_topics(client, settings, names)
        missing = [name for name in names if name not in topics]
        if not missing:
            return topics
        brokers = client.list_topics(missing[0], settings.connect_timeout_s).brokers
        if len(brokers) == 1 or time.monotonic() > deadline_s:
            raise TopicMissing(missing[0])
        time.sleep(RETRY_S)


def places_of(
    consumer: Consumer, settings: LogSettings, names: Sequence[str], partitions: Sequence[int] | None
) -> list[Place]:
    """Every partition of the topics, or those of `partitions`. Raises TopicMissing, BrokerUnreachable."""
    topics = known_topics(consumer, settings, names)
    return [
        (name, number)
        for name in names
        for number in (sorted(topics[name].partitions) if partitions is None else partitions)
    ]


def offsets_of(
    consumer: Consumer, settings: LogSettings, places: Sequence[Place], which: int, *, timeout_s: float | None = None
) -> dict[Place, int]:
    """First (OFFSET_BEGINNING) or one past the last committed (OFFSET_END) offset of each place, in one request.

    timeout_s: how long a broker that is named leader a moment before it has the partition may take; as `patiently`.
    """
    queries = [TopicPartition(*place, which) for place in places]
    names = sorted({name for name, _ in places})

    def request() -> dict[Place, int]:
        try:
            answers = consumer.offsets_for_times(queries, timeout=settings.connect_timeout_s)
        except KafkaException as raised:
            if error_of(raised).code() != KafkaError._UNKNOWN_PARTITION:
                raise
            # The client forgets who leads when it loses the broker for a moment: asking makes it know again.
            known_topics(consumer, settings, names)
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from raised
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
        return {(answer.topic, answer.partition): answer.offset for answer in answers}

    about = names[0] if len(names) == 1 else f"{len(names)} topics"
    return patiently(request, settings, about, timeout_s=timeout_s)


def out_of_range(consumer: Consumer, settings: LogSettings, place: Place, offset: int) -> LogError:
    low = offsets_of(consumer, settings, [place], OFFSET_BEGINNING)[place]
    if offset < low:
        return history_cut(place, offset, low)
    return LogError(f"{place[0]} partition {place[1]} does not reach offset {offset}")


def history_cut(place: Place, offset: int, low: int) -> HistoryCut:
    return HistoryCut(
        f"{place[0]} partition {place[1]} begins at {low}, the read starts at {offset}: retention removed what was before"
    )
